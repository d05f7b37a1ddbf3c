"""Before the engine is up, when it cannot come up, and what it leaves behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx
import psutil

from cluster.models.server import ModelServer
from cluster.paths import DataDir
from cluster.processes import free_port, session_of
from configs.model_profile import Model, ModelProfile, load_profile
from tests.llm.conftest import Engine, wait_until

START_TIMEOUT_S = 280
QUICK_S = 45  # what the ingress needs to start; it says 503 for as long as a model loads


def _server(profile: ModelProfile, root: Path) -> ModelServer:
    data = DataDir(root)
    data.create()
    return ModelServer(profile.model_copy(update={"port": free_port()}), data)


def _asked(engine: Engine) -> int | None:
    """The status of an answer; ``None`` when nobody listens yet."""
    began = time.monotonic()
    try:
        status = engine.ask("Hello", max_tokens=1).status_code
    except httpx.ConnectError:
        status = None
    took = time.monotonic() - began
    assert took < QUICK_S, f"it hangs: {status} after {took:.0f} s"
    print(f"{status} after {took:.1f} s")
    return status


def test_while_a_model_loads_requests_are_refused(tmp_path: Path) -> None:
    server = _server(load_profile("cpu-smollm2"), tmp_path)
    engine = Engine(server, server.profile.url, server.profile.models[0].name)
    server.start()
    found: list[int | None] = []
    try:
        wait_until(lambda: found.append(_asked(engine)) or found[-1] == 200, START_TIMEOUT_S, f"not up: {found}")
    finally:
        server.stop()
    assert found[0] is None
    assert set(found) <= {None, 404, 503, 200}
    assert 503 in found


def test_a_model_that_cannot_be_had_ends_the_process_and_it_pauses_longer_each_time(tmp_path: Path) -> None:
    model = Model(name="none", source="package:no-such-package", roles=("classifier",), kv_cache_gib=1)
    server = _server(ModelProfile(models=(model,)), tmp_path)
    pauses = [_attempt(server) for _ in range(2)]
    assert "no-such-package is not installed" in server.log.read_text()
    assert pauses[0] >= 1
    assert pauses[1] >= pauses[0] + 1


def _attempt(server: ModelServer) -> float:
    """Start it, see its process end, and measure for how long it still counts as alive."""
    server.start()
    try:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, START_TIMEOUT_S, "it goes on without a model")
        assert server.alive()
        return wait_until(lambda: not server.alive(), 30, "the pause does not end")
    finally:
        server.stop()


def test_what_a_killed_one_left_is_ended(tmp_path: Path) -> None:
    server = _server(load_profile("cpu-smollm2"), tmp_path)
    server.start()
    leader = server.pid
    assert leader is not None
    try:
        wait_until(lambda: len(_names(leader) & {"gcs_server", "raylet"}) == 2, START_TIMEOUT_S, "no Ray came up")
        psutil.Process(leader).send_signal(signal.SIGKILL)
        wait_until(lambda: not server.alive(), 30, "the killed process counts as alive")
        assert "gcs_server" in _names(leader)
    finally:
        server.stop()
    assert session_of(leader) == []


def _names(leader: int) -> set[str]:
    names = set()
    for process in session_of(leader):
        try:
            names.add(process.name())
        except psutil.NoSuchProcess:
            continue
    return names
