"""Several replicas behind HAProxy."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from cluster.processes import free_port
from tests.acceptance.conftest import Running, wait_until

pytestmark = pytest.mark.timeout(300)
AGENTS = [f"agent-{number}" for number in range(12)]
PREFIX = "SERVE_REPLICA"


class Replicated(Running):
    """An instance with two replicas."""

    def up(self) -> None:
        self.cli("up", "--detach", "--port", str(self.port), "--replicas", "2")

    def requests(self) -> dict[str, int]:
        """Requests that each replica that is up has got, as HAProxy counts them; its health checks do not count."""
        stats = json.loads((self.root / "run" / "endpoint.json").read_text())["haproxy_stats"]
        rows = csv.DictReader(io.StringIO(httpx.get(f"{stats};csv", timeout=5).text.removeprefix("# ")))
        return {
            row["svname"]: int(row["stot"])
            for row in rows
            if row["svname"].startswith(PREFIX) and row["status"].startswith("UP")
        }

    def has_two_replicas(self) -> bool:
        try:
            return len(self.requests()) == 2
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def replicated() -> Iterator[Replicated]:
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)
    running = Replicated(root, free_port())
    running.up()
    yield running
    running.down()
    shutil.rmtree(root, ignore_errors=True)


def _use(api: httpx.Client, agent: str) -> None:
    """A write, a search and a context of one agent."""
    body = {"content": f"{agent} likes herons.", "user_id": "ann", "wait": "persistent"}
    assert api.post(f"/v1/agents/{agent}/memories", json=body).status_code == httpx.codes.CREATED
    query = {"query": "Who likes herons?", "user_id": "ann"}
    found = api.post(f"/v1/agents/{agent}/memories/search", json=query)
    assert agent in found.text, found.text
    context = api.post(f"/v1/agents/{agent}/context", json=query)
    assert agent in context.text, context.text


def test_an_agent_stays_with_one_replica_and_both_are_used(replicated: Replicated) -> None:
    wait_until(replicated.has_two_replicas, 30, "there are no two replicas")
    used = set()
    with replicated.client() as api:
        for agent in AGENTS:
            before = replicated.requests()
            _use(api, agent)
            after = replicated.requests()
            grown = {name: count - before[name] for name, count in after.items() if count > before[name]}
            assert list(grown.values()) == [3], f"{agent} is spread: {grown}"
            used |= set(grown)
    assert len(used) == 2, "one replica got everything"


def test_haproxy_listens_on_loopback_only(replicated: Replicated) -> None:
    found = {
        connection.laddr
        for process in replicated.named("haproxy.cfg")
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert replicated.port in {address.port for address in found}
    assert len(found) == 3, "the API, the statistics and the metrics are expected"
    assert {address.ip for address in found} == {"127.0.0.1"}


def test_a_lost_replica_is_replaced_while_the_other_answers(replicated: Replicated) -> None:
    wait_until(replicated.has_two_replicas, 30, "there are no two replicas")
    before = set(replicated.requests())
    os.kill(replicated.named("ServeReplica")[0].pid, signal.SIGKILL)
    with replicated.client() as api:
        for agent in AGENTS:
            wait_until(lambda agent=agent: _reads(api, agent), 5, f"nobody answers for {agent}")  # type: ignore[misc]
    wait_until(lambda: replicated.has_two_replicas() and set(replicated.requests()) != before, 40, "it stays lost")


def _reads(api: httpx.Client, agent: str) -> bool:
    try:
        return api.get(f"/v1/agents/{agent}/memories").status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def test_a_start_reaps_the_haproxy_that_was_left(replicated: Replicated) -> None:
    """Everything is killed but HAProxy, which then holds its ports; nobody recorded it."""
    [left] = replicated.named("haproxy.cfg")
    for process in replicated.processes():
        if process.pid != left.pid:
            os.kill(process.pid, signal.SIGKILL)
    assert left.is_running()
    (replicated.root / "run" / "processes.json").unlink()
    replicated.up()
    assert not left.is_running()
    with replicated.client() as api:
        assert all(_reads(api, agent) for agent in AGENTS)
    wait_until(replicated.has_two_replicas, 30, "there are no two replicas")
