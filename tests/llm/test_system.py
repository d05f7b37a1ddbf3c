"""The whole system with models beside it."""

from __future__ import annotations

import ipaddress
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from cluster.models.server import ModelServer
from cluster.processes import free_port, session_of
from configs.model_profile import PROFILES, ModelProfile, load_profile
from tests.acceptance.conftest import Running
from tests.llm.conftest import Engine, wait_until

LOADED_S = 240
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def system() -> Iterator[tuple[Running, ModelProfile]]:
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)
    profile = yaml.safe_load((PROFILES / "cpu-smollm2.yaml").read_text()) | {"port": free_port()}
    file = root / "models.yaml"
    file.write_text(yaml.safe_dump(profile))
    running = Running(root, free_port())
    running.cli("up", "--detach", "--port", str(running.port), "--models", str(file))
    yield running, load_profile(str(file))
    running.down()
    shutil.rmtree(root, ignore_errors=True)


def _answers(profile: ModelProfile) -> bool:
    body = {"model": profile.models[0].name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    try:
        return httpx.post(f"{profile.url}/chat/completions", json=body, timeout=30).is_success
    except httpx.TransportError:
        return False


def _models_pid(running: Running) -> int:
    return int(running.status()["processes"].get("models", 0))


def test_the_api_does_not_wait_for_the_models_and_they_come_up(system: tuple[Running, ModelProfile]) -> None:
    running, profile = system
    assert not _answers(profile)
    with running.client() as api:
        body = {"content": "I prefer green tea.", "user_id": "ann"}
        assert api.post("/v1/agents/a/memories", json=body).is_success
    wait_until(lambda: _answers(profile), LOADED_S, "the models did not come up")


def test_only_rays_ports_are_open_beyond_loopback_and_they_ask_for_a_token(
    system: tuple[Running, ModelProfile],
) -> None:
    running, profile = system
    strangers = set()
    for process in session_of(_models_pid(running)):
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN and not ipaddress.ip_address(connection.laddr.ip).is_loopback:
                strangers.add((connection.laddr.ip.replace("::ffff:", ""), connection.laddr.port))
    assert profile.port not in {port for _, port in strangers}
    answers = [answer for ip, port in strangers if (answer := _jobs(ip, port)) is not None]
    assert 401 in {answer.status_code for answer in answers}
    # What answers a stranger tells figures and nothing else.
    assert all(answer.text.startswith("# HELP") for answer in answers if answer.is_success)


def _jobs(ip: str, port: int) -> httpx.Response | None:
    host = "127.0.0.1" if ip in {"::", "0.0.0.0"} else ip  # noqa: S104
    try:
        return httpx.get(f"http://{host}:{port}/api/jobs/", timeout=2)
    except httpx.HTTPError:
        return None  # it speaks gRPC


def test_a_killed_host_is_started_again(system: tuple[Running, ModelProfile]) -> None:
    running, profile = system
    wait_until(lambda: _answers(profile), LOADED_S, "the models did not come up")
    before = _models_pid(running)
    psutil.Process(before).kill()
    wait_until(lambda: _models_pid(running) not in (0, before), 60, "nobody starts it again")
    assert session_of(before) == []
    wait_until(lambda: _answers(profile), LOADED_S, "the models did not come back")
    with running.client() as api:
        assert api.get("/health/ready").is_success


def test_down_ends_the_models_too(system: tuple[Running, ModelProfile]) -> None:
    running, profile = system
    models = _models_pid(running)
    running.cli("down")
    assert session_of(models) == []
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{profile.url}/models", timeout=5)


def test_a_models_port_that_is_taken_is_named(engine: Engine, tmp_path: Path) -> None:
    assert isinstance(engine.server, ModelServer)
    file = tmp_path / "models.yaml"
    file.write_text(engine.server.profile.model_dump_json())  # JSON is YAML
    failed = Running(tmp_path / "data", free_port()).cli("up", "--models", str(file), check=False)
    assert failed.returncode == 1
    assert f"port {engine.server.profile.port} of the models is held by process" in " ".join(failed.stderr.split())
