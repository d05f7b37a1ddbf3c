"""The API and its shards in this process, over the real servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from actors.service import ShardService
from configs.settings import Settings
from memory.ports import Embedder
from memory.routing import assignments
from memory.rules import RuleClassifier
from serve.app import build_app
from stores.models.minilm import MiniLM
from stores.postgres.database import Database
from stores.postgres.shards import ShardStore
from stores.valkey.connection import Valkey


@pytest.fixture(scope="session")
def embedder() -> MiniLM:
    return MiniLM()


@dataclass
class System:
    """A running system and its clients, one per tenant."""

    app: FastAPI
    settings: Settings
    database: Database
    valkey: Valkey
    api: httpx.AsyncClient  # tenant-a
    other: httpx.AsyncClient  # tenant-b
    embedder: Embedder

    async def assign(self, *shards: str) -> int:
        return await ShardStore(self.database).assign(assignments(shards))

    @asynccontextmanager
    async def shard(self, name: str) -> AsyncIterator[ShardService]:
        """A shard that runs until the block ends."""
        service = ShardService(name, self.settings, embedder=self.embedder, classifier=RuleClassifier())
        task = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            task.cancel()  # once: a second one would interrupt its cleaning up
            await asyncio.wait([task])

    async def remember(self, content: str, *, agent: str = "agent", **body: Any) -> dict[str, Any]:
        """Write and wait until it is stored."""
        values = {"content": content, "user_id": "ann", "wait": "persistent"} | body
        response = await self.api.post(f"/v1/agents/{agent}/memories", json=values)
        assert response.status_code in (200, 201), response.text
        found: dict[str, Any] = response.json()
        return found

    async def search(self, query: str, *, agent: str = "agent", **body: Any) -> list[dict[str, Any]]:
        values = {"query": query, "user_id": "ann"} | body
        response = await self.api.post(f"/v1/agents/{agent}/memories/search", json=values)
        assert response.status_code == 200, response.text
        hits: list[dict[str, Any]] = response.json()["hits"]
        return hits

    async def settled(self, accepted: int) -> dict[str, Any]:
        """Wait until the ledger has settled this many writes."""
        for _ in range(400):
            ledger: dict[str, Any] = (await self.api.get("/v1/ledger")).json()
            if ledger["accepted"] == accepted and ledger["pending"] == 0:
                return ledger
            await asyncio.sleep(0.05)
        raise AssertionError(f"not settled: {ledger}")


def contents(hits: Sequence[dict[str, Any]]) -> list[str]:
    return [hit["memory"]["content"] for hit in hits]


@pytest.fixture
async def system(settings: Settings, database: Database, valkey: Valkey, embedder: MiniLM) -> AsyncIterator[System]:
    """The API without shards; a test starts those that it needs."""
    async with database.connection() as connection:
        tables = "agents, sessions, episodic_memory, semantic_memory, procedural_memory, namespaces, memory_sources"
        await connection.execute(
            f"TRUNCATE {tables}, quarantined_facts, user_deletions, memory_history, tombstones, write_ledger, "
            "dead_letters, shard_assignments"
        )
    app = build_app(settings)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app),
                    base_url="http://test",
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=30,
                )
            )
            for key in ("key-a", "key-b")
        ]
        yield System(app, settings, database, valkey, *clients, embedder)


@pytest.fixture
async def running(system: System) -> AsyncIterator[System]:
    """The same with one shard that owns everything."""
    await system.assign("shard-0")
    async with system.shard("shard-0"):
        yield system
