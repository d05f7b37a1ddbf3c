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
from tests.llm.conftest import wait_until

START_TIMEOUT_S = 120


def _server(profile: ModelProfile, root: Path) -> ModelServer:
    data = DataDir(root)
    data.create()
    return ModelServer(profile.model_copy(update={"port": free_port()}), data)


def _refused(url: str) -> bool:
    """Asking costs no waiting: nobody listens yet, or what listens says 4xx or 503."""
    began = time.monotonic()
    try:
        answer = httpx.get(f"{url}/models", timeout=10)
    except httpx.ConnectError:
        return time.monotonic() - began < 5
    return time.monotonic() - began < 5 and answer.status_code in {404, 503}


def test_before_it_is_up_a_request_is_refused_at_once(tmp_path: Path) -> None:
    server = _server(load_profile("cpu-smollm2"), tmp_path)
    server.start()
    try:
        assert server.alive()
        assert not server.ready()
        for _ in range(5):
            assert _refused(server.profile.url)
            time.sleep(1)
    finally:
        server.stop()


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
