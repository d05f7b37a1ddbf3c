"""Connections, and the translation of driver errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ClusterDownError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as ValkeyConnectionError
from redis.exceptions import TimeoutError as ValkeyTimeoutError

from memory.errors import Unavailable

Valkey = Redis | RedisCluster
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
BLOCKING_TIMEOUT_S = 30.0  # a consumer waits for entries longer than a request waits for an answer
_LOST = (
    ValkeyConnectionError,
    ValkeyTimeoutError,
    BusyLoadingError,
    ClusterDownError,
    ReadOnlyError,
    OutOfMemoryError,
)
_REFUSING = ("MISCONF", "NOREPLICAS", "MASTERDOWN", "OOM")  # a full disk, too few replicas, a lost master, no memory


@contextmanager
def translated() -> Iterator[None]:
    """Turn lost connections, time-outs and servers that take no writes into ``Unavailable``; everything else passes."""
    try:
        yield
    except _LOST as exc:
        raise Unavailable(f"Valkey does not answer: {exc}") from exc
    except ResponseError as exc:
        answer = str(exc).rpartition("caused error: ")[2].lstrip("('\"")  # a pipeline tells which command it was
        if not answer.startswith(_REFUSING):
            raise
        raise Unavailable(f"Valkey takes no writes now: {exc}") from exc


def open_valkey(url: str, *, cluster: bool, blocking: bool = False) -> Valkey:
    """A client with a pool of its own; it connects when it is first used. Close it with ``aclose()``."""
    answer_s = BLOCKING_TIMEOUT_S if blocking else ANSWER_TIMEOUT_S
    if cluster:
        return RedisCluster.from_url(url, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=answer_s)
    # A command is never repeated by the driver: a write that was executed and not answered would run twice.
    return Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=answer_s,
        retry=Retry(NoBackoff(), 0),
        max_connections=1024,
    )


def script(name: str) -> str:
    """The Lua script ``lua/<name>.lua``."""
    return resources.files("stores.valkey").joinpath("lua", f"{name}.lua").read_text("utf-8")
