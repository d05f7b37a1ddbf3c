"""A Valkey Cluster of two nodes beside the single server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis

from cluster.paths import DataDir
from cluster.processes import free_ports
from cluster.valkey_server import binary
from stores.valkey.connection import Valkey, open_valkey

SLOTS = 16_384


@pytest.fixture(scope="session")
def valkey_cluster(data: DataDir) -> Iterator[str]:
    """URL of one of two nodes; each has half of the slots."""
    ports = free_ports(4)
    nodes = [_node(data.root / f"cluster-{port}", port, bus) for port, bus in zip(ports[:2], ports[2:], strict=True)]
    try:
        _join(ports[:2], ports[2:])
        yield f"redis://127.0.0.1:{ports[0]}"
    finally:
        for node in nodes:
            node.terminate()
            node.wait()


def _node(folder: Path, port: int, bus: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    options = {"port": port, "cluster-port": bus, "bind": "127.0.0.1", "dir": folder, "appendonly": "yes"}
    options |= {"cluster-enabled": "yes", "save": "", "logfile": folder / "log"}
    return subprocess.Popen(
        [binary(), *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
    )


def _join(ports: list[int], buses: list[int]) -> None:
    clients = [redis.Redis(port=port) for port in ports]
    for client in clients:
        _wait_until(client.ping)
    for number, client in enumerate(clients):
        first, last = number * SLOTS // len(clients), (number + 1) * SLOTS // len(clients) - 1
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
    clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", ports[1], buses[1])
    for client in clients:
        _wait_until(lambda client=client: _is_whole(client, len(clients)))
        client.close()


def _is_whole(client: redis.Redis, nodes: int) -> bool:
    known: dict[str, str] = client.cluster("INFO")
    return known["cluster_state"] == "ok" and int(known["cluster_known_nodes"]) == nodes


def _wait_until(condition: object) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            if condition():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < deadline, "the cluster does not get ready"
        time.sleep(0.05)


@pytest.fixture(params=["server", "cluster"])
async def valkey(request: pytest.FixtureRequest) -> AsyncIterator[Valkey]:
    """Every test of the suite runs on both."""
    cluster = request.param == "cluster"
    url: str = request.getfixturevalue("valkey_cluster" if cluster else "redis_url")
    client = open_valkey(url, cluster=cluster)
    await client.flushall()
    yield client
    await client.aclose()
