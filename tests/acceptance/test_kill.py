"""Invariants 1 and 2: whatever is killed, every acknowledged write is there exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from cluster.exit_codes import ExitCode
from tests.acceptance.conftest import Running, wait_until

pytestmark = pytest.mark.timeout(900)
AGENTS = 6


class Writer(threading.Thread):
    """Writes numbered notes, each with an idempotency key, and repeats what was not acknowledged."""

    def __init__(self, running: Running, name: str) -> None:
        super().__init__(daemon=True)
        self._running = running
        self._label = name
        self._stopping = threading.Event()
        self.acknowledged: dict[str, str] = {}  # content -> id

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            content = f"{self._label} {number}"
            if self._write(content, number):
                number += 1
                time.sleep(0.01)
            else:
                time.sleep(0.2)

    def _write(self, content: str, number: int) -> bool:
        body = {"content": content, "user_id": "ann", "infer": False, "idempotency_key": content}
        try:
            with self._running.client() as api:
                answer = api.post(f"/v1/agents/agent-{number % AGENTS}/memories", json=body, timeout=5)
        except httpx.HTTPError:
            return False
        if answer.status_code in (200, 201, 202):
            self.acknowledged[content] = answer.json()["id"]
            return True
        return False

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@contextmanager
def writing(running: Running, name: str) -> Iterator[Writer]:
    writer = Writer(running, name)
    writer.start()
    wait_until(lambda: len(writer.acknowledged) > 20, 60, "nothing is accepted")
    try:
        yield writer
    finally:
        before = len(writer.acknowledged)
        try:
            wait_until(lambda: len(writer.acknowledged) > before + 20, 180, "nothing is accepted any more")
        finally:
            writer.stop()


def kill(pids: list[int]) -> None:
    assert pids, "there is nothing to kill"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def check(running: Running, writer: Writer) -> None:
    """The ledger reconciles, and every acknowledged note is stored once, under its id."""
    running.await_ready()
    with running.client() as api:

        def reconciled() -> bool:
            ledger = api.get("/v1/ledger").json()
            return bool(ledger["pending"] == 0 and ledger["reconciled"])

        wait_until(reconciled, 120, "the ledger does not reconcile")
        ledger = api.get("/v1/ledger").json()
        assert (ledger["rejected"], ledger["dead_lettered"]) == (0, 0)
        stored: list[tuple[str, str]] = []
        for number in range(AGENTS):
            cursor: str | None = None
            while True:
                params = {"limit": 500} | ({"cursor": cursor} if cursor else {})
                page = api.get(f"/v1/agents/agent-{number}/memories", params=params).json()
                stored += [(item["content"], item["id"]) for item in page["items"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
    assert len(stored) == len({content for content, _ in stored}), "a note is stored twice"
    assert writer.acknowledged.items() <= dict(stored).items(), "an acknowledged note is missing"


@pytest.mark.parametrize("victim", ["replica", "shard", "Valkey", "PostgreSQL", "Ray"])
def test_nothing_acknowledged_is_lost_when_one_is_killed(instance: Running, victim: str) -> None:
    with writing(instance, victim) as writer:
        kill(_victims(instance, victim))
        time.sleep(1.5)
        instance.await_ready()
    check(instance, writer)


def _victims(running: Running, victim: str) -> list[int]:
    if victim == "replica":
        return [process.pid for process in running.named("ServeReplica")]
    if victim == "shard":
        return [process.pid for process in running.named("AgentShard")]
    leader = running.status()["processes"][victim]
    if victim != "Ray":
        return [leader]
    return [process.pid for process in running.processes() if os.getsid(process.pid) == leader]


def test_a_replica_killed_under_open_connections_has_its_port_again_at_once(instance: Running) -> None:
    """What the kernel remembers of them keeps the port for a minute from whoever does not ask to reuse it."""
    with instance.client() as api:
        assert api.get("/health/live").status_code == httpx.codes.OK
        kill(_victims(instance, "replica"))
        time.sleep(1.5)
    instance.await_ready(timeout_s=40)


def test_an_api_that_is_gone_while_ray_runs_is_deployed_again(instance: Running) -> None:
    ray = psutil.Process(instance.status()["processes"]["Ray"])
    port = next(part.partition("=")[2] for part in ray.cmdline() if part.startswith("--port="))
    program = "import ray; ray.init(); ray.serve.shutdown()"
    env = ray.environ() | {"RAY_ADDRESS": f"127.0.0.1:{port}"}
    subprocess.run([sys.executable, "-c", f"import ray.serve; {program}"], env=env, check=True, capture_output=True)
    assert instance.cli("status", check=False).returncode == ExitCode.UNAVAILABLE
    instance.await_ready(timeout_s=90)


def test_everything_is_killed_and_the_next_start_works_at_the_first_try(instance: Running) -> None:
    writer = Writer(instance, "everything")
    writer.start()
    wait_until(lambda: len(writer.acknowledged) > 20, 60, "nothing is accepted")
    kill([process.pid for process in instance.processes()])
    writer.stop()
    instance.up()
    check(instance, writer)


def test_a_start_reaps_servers_that_nobody_recorded(instance: Running) -> None:
    """The supervisor can be killed between a server's start and its note of it."""
    old = instance.status()["processes"]
    kill([instance.supervisor()])
    (instance.root / "run" / "processes.json").unlink()
    instance.up()
    assert not set(old.values()) & set(instance.status()["processes"].values())
    assert not any(psutil.pid_exists(pid) for pid in old.values())
