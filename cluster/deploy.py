"""Creates the shards and deploys the API on the Ray cluster that ``RAY_ADDRESS`` names, then ends.

Running it again with another number of shards or replicas changes the running system. ``--anew`` ends the API first,
for one that does not answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import ray
from ray import serve as ray_serve

from actors.shard import NAMESPACE, ensure_shard, shard_name
from cluster.liveness import answers
from cluster.processes import free_port
from configs.settings import Settings
from memory.errors import Misconfigured, Unavailable
from memory.routing import assignments
from serve.deployment import NAME, build_application
from stores.postgres.database import Database
from stores.postgres.shards import ShardStore

READY_TIMEOUT_S = 120.0
ATTEMPTS = 3


def deploy(settings: Settings, *, anew: bool = False) -> None:
    """Bring shards and API to what ``settings`` say. Raises ``Unavailable`` when the API does not get ready."""
    ray.init(address=settings.ray_address or "auto", namespace=NAMESPACE, log_to_driver=False)
    names = [shard_name(index) for index in range(settings.shards)]
    shards = [ensure_shard(name, settings) for name in names]
    asyncio.run(_assign(settings, names))
    if anew:
        ray_serve.shutdown()  # type: ignore[no-untyped-call]
    _serve(settings)
    ray.get([shard.owned.remote() for shard in shards], timeout=READY_TIMEOUT_S)
    _retire(names)
    _await_ready(settings)


def _serve(settings: Settings) -> None:
    """Deploy the API. A Serve that once found the port taken never tries it again, so a failed one is replaced."""
    for attempt in range(1, ATTEMPTS + 1):
        ray_serve.start(http_options={"host": settings.serve.host, "port": _proxy_port(settings)})
        try:
            ray_serve.run(build_application(settings), name=NAME, route_prefix="/")
        except RuntimeError as exc:
            if attempt == ATTEMPTS:
                raise Unavailable(f"the API could not be deployed: {exc}; see Ray's logs") from exc
            ray_serve.shutdown()  # type: ignore[no-untyped-call]
        else:
            return


def _proxy_port(settings: Settings) -> int:
    """Where Serve's own proxy listens: on the API's port with HAProxy; else out of the replica's way.

    With direct ingress the replica itself serves the API's port, and the proxy, which Serve starts all the same,
    must not take it first.
    """
    if settings.serve.replicas > 1:
        return settings.serve.port
    return free_port()


async def _assign(settings: Settings, names: Sequence[str]) -> None:
    if settings.postgres_dsn is None:
        raise Misconfigured("deploying needs MNEMORAY_POSTGRES_DSN")
    database = Database(settings.postgres_dsn, pool_size=1)
    await database.open()
    try:
        await ShardStore(database).assign(assignments(names, partitions=settings.partitions))
    finally:
        await database.close()


def _retire(names: Sequence[str]) -> None:
    """End shards above the configured number; their partitions are assigned to others already."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith("shard-") and actor["name"] not in names:
            ray.kill(ray.get_actor(actor["name"], namespace=NAMESPACE))


def _await_ready(settings: Settings) -> None:
    url = f"http://127.0.0.1:{settings.serve.port}"
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if answers(url, "/health/ready"):
            return
        time.sleep(0.1)
    raise Unavailable(f"the API at {url} did not get ready in {READY_TIMEOUT_S:.0f} s; see Ray's logs")


if __name__ == "__main__":
    deploy(Settings(), anew="--anew" in sys.argv[1:])
