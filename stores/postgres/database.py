"""The connection pool, transactions of one tenant, and the translation of driver errors."""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from memory.errors import Unavailable
from memory.records import TenantId
from stores.tasks import heed_cancellation

Connection = AsyncConnection[DictRow]
logger = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 15.0


@contextmanager
def translated() -> Iterator[None]:
    """Turn lost connections and time-outs into ``Unavailable``; everything else passes."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as exc:
        raise Unavailable(f"PostgreSQL does not answer: {exc}") from exc


async def _configure(connection: Connection) -> None:
    await register_vector_async(connection)
    await connection.set_autocommit(True)


async def _check(connection: Connection) -> None:
    """Ask the server only when the socket says that something happened to the connection: a round trip saved."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    if poll.poll(0):
        await AsyncConnectionPool.check_connection(connection)


class Database:
    """A pool of connections to one database. Build it, then ``open()``."""

    def __init__(self, dsn: str, *, pool_size: int, timeout_s: float = 5.0) -> None:
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            connection_class=AsyncConnection[DictRow],
            kwargs={"row_factory": dict_row, "application_name": "mnemoray"},
            min_size=1,
            max_size=pool_size,
            timeout=timeout_s,
            reconnect_timeout=30.0,
            configure=_configure,
            check=_check,
            open=False,
        )
        self._returns: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect; raises ``Unavailable`` when the server does not answer in time. What fails leaves nothing open."""
        try:
            with translated():
                await self._pool.open(wait=True, timeout=30.0)
            heed_cancellation()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections; one that cannot be had back in time is left to the end of the process."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            logger.exception("the connection pool did not close in %.0f s: %s", CLOSE_TIMEOUT_S, self._pool.get_stats())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode that sees no tenant's rows."""
        with translated():
            connection = await self._take()
            try:
                async with connection:
                    yield connection
            finally:
                await asyncio.shield(self._give_back(connection))

    async def _take(self) -> Connection:
        """A connection of the pool, in a task of its own.

        A pool whose ``getconn`` or ``putconn`` is cancelled at the wrong moment loses the connection, and after
        ``pool_size`` losses it answers nobody. Every client that hangs up cancels what it asked for.
        """
        taking = asyncio.create_task(self._pool.getconn())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back_taken)
            raise

    def _give_back_taken(self, taking: asyncio.Task[Connection]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            self._give_back(taking.result())

    def _give_back(self, connection: Connection) -> asyncio.Task[None]:
        returning = asyncio.create_task(self._pool.putconn(connection))
        self._returns.add(returning)
        returning.add_done_callback(self._returns.discard)
        return returning

    @asynccontextmanager
    async def transaction(self, tenant_id: TenantId) -> AsyncIterator[Connection]:
        """A transaction that sees and writes the rows of one tenant."""
        async with self.connection() as connection, connection.transaction():
            await set_tenant(connection, tenant_id)
            yield connection

    @asynccontextmanager
    async def pipelined(self, tenant_id: TenantId) -> AsyncIterator[Connection]:
        """The same for reading; statements are sent together with the first that is read: one round trip.

        What stands between two synchronisation points of a pipeline is one transaction of its own, so neither BEGIN nor
        COMMIT is sent.
        """
        async with self.connection() as connection, connection.pipeline():
            await set_tenant(connection, tenant_id)
            yield connection


async def set_tenant(connection: Connection, tenant_id: TenantId) -> None:
    """Let the rest of the transaction see the rows of ``tenant_id`` and of nobody else."""
    await connection.execute("SELECT set_config('mnemoray.tenant', %s, true)", [tenant_id])
