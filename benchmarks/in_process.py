"""This system without HTTP: its writer and its retriever on their stores, given vectors as other libraries are."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import uuid_utils

from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from cluster.valkey_server import ValkeyServer
from configs.settings import Settings
from memory.ports import Vectors
from memory.records import AgentId, Classification, Interaction, MemoryId, Partition, SessionId, TenantId, UserId
from memory.routing import partition_of
from migrations.runner import FixedSettings, migrate
from serve.recall import Question
from serve.services import Services, open_services
from stores.postgres.shards import ShardStore
from stores.postgres.writes import Ownership, Prepared, WriteStore

TENANT, SHARD = TenantId("default"), "benchmark"
IMPORTANCE = 0.45


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Rates and, for each ``top_k``, milliseconds and metadata of what was found, per question."""

    adds_per_s: float
    batch_adds_per_s: float
    searches: Mapping[int, tuple[Sequence[float], Sequence[Sequence[Mapping[str, Any]]]]]


def measure(
    writes: Sequence[Mapping[str, Any]],
    vectors: Vectors,
    asked: Sequence[tuple[str, str]],
    *,
    batch: int,
    tops: Sequence[int],
) -> Figures:
    """``writes`` are bodies as an import sends them, ``vectors`` theirs, ``asked`` user and text."""
    return asyncio.run(_measure(writes, vectors, asked, batch, tops))


async def _measure(
    writes: Sequence[Mapping[str, Any]],
    vectors: Vectors,
    asked: Sequence[tuple[str, str]],
    batch: int,
    tops: Sequence[int],
) -> Figures:
    async with _opened(queries=len(asked)) as services:
        singles_per_s = await _store(services, AgentId("one-by-one"), writes, vectors, batch=1)
        batched_per_s = await _store(services, AgentId("batched"), writes, vectors, batch=batch)
        # The first pass loads the indexes and embeds the questions, which the others keep.
        await _search(services, asked, tops[0])
        searches = {top_k: await _search(services, asked, top_k) for top_k in tops}
    return Figures(adds_per_s=singles_per_s, batch_adds_per_s=batched_per_s, searches=searches)


@asynccontextmanager
async def servers(**settings: Any) -> AsyncIterator[Settings]:
    """Fresh servers, migrated, and settings that name them."""
    data = _data_dir()
    postgres, valkey = PostgresServer(data), ValkeyServer(data)
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, data.root, ignore_errors=True)
        for server in (postgres, valkey):
            stack.callback(server.stop)
            server.start()
        found = Settings(postgres_dsn=postgres.dsn, redis_url=valkey.url, **settings)
        await migrate(postgres.dsn, FixedSettings(partitions=found.partitions, dimension=found.embedding.dimension))
        yield found


@asynccontextmanager
async def _opened(*, queries: int) -> AsyncIterator[Services]:
    """Fresh servers, and what an API replica opens on them."""
    async with servers() as settings, AsyncExitStack() as stack:
        recall = settings.recall.model_copy(update={"query_cache_size": 2 * queries})
        yield await open_services(settings.model_copy(update={"recall": recall}), stack)


def _data_dir() -> DataDir:
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)  # the database's system user must get in
    data = DataDir(root)
    data.create()
    return data


async def _store(
    services: Services, agent: AgentId, writes: Sequence[Mapping[str, Any]], vectors: Vectors, *, batch: int
) -> float:
    """Memories per second, each batch committed to disk before the next."""
    partition = partition_of(TENANT, agent)
    shards = ShardStore(services.database)
    await shards.assign({partition: SHARD})
    owner = Ownership(partition=partition, shard=SHARD, epoch=(await shards.owned(SHARD))[partition])
    store = WriteStore(services.database, embedding_model=services.embedder.model)
    items = [_prepared(agent, body, vector) for body, vector in zip(writes, vectors, strict=True)]
    started = perf_counter()
    for start in range(0, len(items), batch):
        await store.persist(owner, items[start : start + batch])
    return len(items) / (perf_counter() - started)


def _prepared(agent: AgentId, body: Mapping[str, Any], vector: Vectors) -> Prepared:
    nothing = np.zeros((0, len(vector)), dtype=np.float32)
    return Prepared(
        interaction=Interaction(
            id=MemoryId(uuid.UUID(bytes=uuid_utils.uuid7().bytes)),
            tenant_id=TENANT,
            agent_id=agent,
            user_id=UserId(body["user_id"]),
            session_id=SessionId(body["session_id"]),
            content=body["content"],
            accepted_at=datetime.now(UTC),
            occurred_at=datetime.fromisoformat(body["occurred_at"]),
            speaker=body.get("speaker"),
            metadata=body["metadata"],
        ),
        classification=Classification(importance=IMPORTANCE),
        vector=vector,
        fact_vectors=nothing,
        skill_vectors=nothing,
    )


async def _search(
    services: Services, asked: Sequence[tuple[str, str]], top_k: int
) -> tuple[list[float], list[list[Mapping[str, Any]]]]:
    times, found = [], []
    for user, text in asked:
        started = perf_counter()
        answer = await services.recall.search(_question(user, text, top_k))
        times.append(1000 * (perf_counter() - started))
        found.append([hit.memory.metadata for hit in answer.hits])
    return times, found


def _question(user: str, text: str, top_k: int) -> Question:
    agent = AgentId("batched")
    return Question(
        tenant_id=TENANT,
        agent_id=agent,
        user_id=UserId(user),
        partition=Partition(partition_of(TENANT, agent)),
        query=text,
        limit=top_k,
        now=datetime.now(UTC),
    )
