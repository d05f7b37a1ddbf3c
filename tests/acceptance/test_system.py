"""The command line and the sockets of a running system."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
from pathlib import Path

import httpx
import psutil
import pytest

from cluster.exit_codes import ExitCode
from cluster.processes import free_port
from tests.acceptance.conftest import Running

pytestmark = pytest.mark.timeout(600)
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "conversation.json"


def test_import_recall_and_context_as_the_start_prints_them(instance: Running) -> None:
    first = json.loads(instance.cli("import", str(EXAMPLE), "--agent", "demo", "--user", "ann", "--json").stdout)
    assert first["stored"] == 6, first
    again = json.loads(instance.cli("import", str(EXAMPLE), "--agent", "demo", "--user", "ann", "--json").stdout)
    assert again["duplicate"] == 6, again
    hits = instance.cli("recall", "What does Ann drink?", "--agent", "demo", "--user", "ann")
    assert "green tea" in hits.stdout
    context = instance.cli("context", "What does Ann drink?", "--agent", "demo", "--user", "ann")
    assert "green tea" in context.stdout


def test_a_second_start_on_the_same_data_says_who_runs(instance: Running) -> None:
    second = instance.cli("up", "--port", str(free_port()), check=False)
    assert second.returncode == ExitCode.FAILED
    assert f"process {instance.supervisor()}" in second.stderr


def test_a_port_that_is_taken_is_named_with_its_holder(instance: Running, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = Running(tmp_path / "other", instance.port)
    failed = other.cli("up", "--port", str(instance.port), check=False)
    assert failed.returncode == ExitCode.FAILED
    assert f"port {instance.port} is held by process" in " ".join(failed.stderr.split())


def test_commands_without_an_instance_say_what_to_do(tmp_path: Path) -> None:
    nothing = Running(tmp_path, 1)
    for command in (["status"], ["down"], ["recall", "x", "--agent", "a", "--user", "u"]):
        failed = nothing.cli(*command, check=False)
        assert failed.returncode == ExitCode.UNAVAILABLE, failed.stderr
        assert "mnemoray up" in failed.stderr


def test_only_ray_listens_beyond_loopback_and_it_asks_for_a_token(instance: Running) -> None:
    strangers = []
    for process in instance.processes():
        for connection in process.net_connections(kind="inet"):
            if connection.status != psutil.CONN_LISTEN:
                continue
            if not ipaddress.ip_address(connection.laddr.ip).is_loopback:
                strangers.append((process, connection.laddr.port))
    leader = instance.status()["processes"]["Ray"]
    assert strangers, "Ray's own ports are expected"
    assert all(os.getsid(process.pid) == leader for process, _ in strangers)
    assert instance.port not in {port for _, port in strangers}
    dashboards = {c.laddr.port for p in instance.processes() for c in p.net_connections(kind="inet")}
    refused = [_status(port) for port in dashboards]
    assert 401 in refused, "no Ray API refuses a stranger"


def _status(port: int) -> int | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/jobs/", timeout=2).status_code
    except (httpx.HTTPError, ValueError):
        return None


def test_secrets_are_readable_by_their_owner_only(instance: Running) -> None:
    folder = instance.root / "secrets"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for name in ("postgres", "valkey"):
        assert stat.S_IMODE((instance.root / "run" / name).stat().st_mode) == 0o700


def test_the_data_survives_a_stop(instance: Running) -> None:
    with instance.client() as api:
        body = {"content": "Remember the heron.", "user_id": "ann", "wait": "persistent"}
        stored = api.post("/v1/agents/stop/memories", json=body).json()
    instance.cli("down")
    instance.up()
    with instance.client() as api:
        assert api.get(f"/v1/agents/stop/memories/{stored['id']}").status_code == httpx.codes.OK
