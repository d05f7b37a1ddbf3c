"""Clients that hang up: what they asked for is cancelled, at any moment."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from stores.postgres.database import Database


async def test_a_client_that_hangs_up_while_it_gives_back_loses_no_connection(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, pool_size=1, timeout_s=2.0)
    await database.open()
    using, done = asyncio.Event(), asyncio.Event()

    async def client() -> None:
        async with database.connection():
            using.set()
            await done.wait()

    try:
        task = asyncio.create_task(client())
        await using.wait()
        async with database._pool._lock:  # another client is being served
            done.set()
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0.05)
        with suppress(asyncio.CancelledError):
            await task
        async with database.connection() as connection:
            await connection.execute("SELECT 1")
    finally:
        await database.close()


async def test_a_client_that_hangs_up_while_it_waits_loses_no_connection(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, pool_size=1, timeout_s=2.0)
    await database.open()

    async def client() -> None:
        async with database.connection():
            pass

    try:
        async with database.connection():
            waiting = [asyncio.create_task(client()) for _ in range(3)]
            await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with database.connection() as connection:
            await connection.execute("SELECT 1")
    finally:
        await database.close()


async def test_a_cancellation_that_the_driver_swallows_ends_the_opening(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(postgres_dsn, pool_size=1)
    connect = database._pool.open

    async def deaf(**options: float) -> None:
        await connect(**options)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3_600)

    monkeypatch.setattr(database._pool, "open", deaf)
    opening = asyncio.create_task(database.open())
    await asyncio.sleep(0.5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert database._pool.closed
