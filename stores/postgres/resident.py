"""What resident indexes read: whole users, what changed since a revision, and the winners of a search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, LiteralString

import numpy as np
from psycopg import AsyncCursor

from memory.columns import Entry
from memory.normalise import content_hash
from memory.phrasing import indexed_text
from memory.ports import HalfVectors
from memory.records import AgentProfile, FactScope, Memory, MemoryId, SessionId, Tier, namespace_of
from stores.postgres import agents, queries, rows
from stores.postgres.database import Connection, Database, set_tenant
from stores.postgres.recall import Scope

_SQL = queries.load("resident")
CHUNK = 500  # rows decoded at once; some milliseconds in which nothing else runs
_CHANGED = {
    Tier.EPISODIC: "changed_episodes",  # first: a fact's neighbour is its source
    Tier.SEMANTIC: "changed_facts",
    Tier.PROCEDURAL: "changed_skills",
}
_HYDRATE = {
    Tier.EPISODIC: "hydrate_episodes",
    Tier.SEMANTIC: "hydrate_facts",
    Tier.PROCEDURAL: "hydrate_skills",
}
_HALF_HEADER = 4  # bytes before the numbers of a halfvec's binary form


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Memories to put into an index, and ids to take out."""

    entries: Sequence[Entry] = ()
    vectors: HalfVectors  # (len(entries), dimension)
    gone: Sequence[MemoryId] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One memory to hydrate."""

    id: MemoryId
    tier: Tier
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Hydrated:
    """The memories that live, and what the index must know to be current."""

    memories: Mapping[MemoryId, Memory] = field(default_factory=dict)
    profile: AgentProfile | None = None
    world_facts: int = 0  # of the tenant

    @property
    def revision(self) -> int:
        return 0 if self.profile is None else self.profile.revision


class ResidentStore:
    """Reads for resident indexes; vectors of ``model`` only."""

    def __init__(self, database: Database, *, model: str, dimension: int) -> None:
        self._database = database
        self._model = model
        self._dimension = dimension

    async def size(self, scope: Scope) -> int:
        """How many memories a load would bring, about. Raises ``Unavailable``."""
        async with self._database.pipelined(scope.tenant_id) as connection:
            row = await (await connection.execute(_SQL["size"], self._key(scope))).fetchone()
        return int(row["memories"]) if row else 0

    @asynccontextmanager
    async def snapshot(self, scope: Scope) -> AsyncIterator[Snapshot]:
        """A moment of the scope to read from. Raises ``Unavailable``."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_SQL["snapshot"])
            await set_tenant(connection, scope.tenant_id)
            profile = await agents.profile(connection, scope.tenant_id, scope.agent_id)
            yield Snapshot(connection, self._key(scope), self._dimension, profile)

    async def hydrate(self, scope: Scope, wanted: Sequence[Wanted]) -> Hydrated:
        """The wanted memories that live, the agent as it is, and the tenant's world facts: one round trip.

        Raises ``Unavailable``.
        """
        key = self._key(scope)
        async with self._database.pipelined(scope.tenant_id) as connection:
            cursors = [
                (tier, await _execute(connection, _SQL[name], key | _of_tier(wanted, tier)))
                for tier, name in _HYDRATE.items()
                if any(each.tier is tier for each in wanted)
            ]
            agent = await (await connection.execute(_SQL["agent"], key)).fetchone() or {}
            found = [rows.OF_TIER[tier](row) for tier, cursor in cursors for row in await cursor.fetchall()]
        world_facts = agent.pop("world_facts", 0)
        return Hydrated(
            memories={memory.id: memory for memory in found},
            profile=AgentProfile(**agent) if agent.get("agent_id") else None,
            world_facts=world_facts,
        )

    def _key(self, scope: Scope) -> dict[str, Any]:
        return {
            "tenant_id": scope.tenant_id,
            "agent_id": scope.agent_id,
            "user_id": scope.user_id,
            "user_namespace": namespace_of(FactScope.USER, scope.user_id),
            "model": self._model,
        }


class Snapshot:
    """One moment of a scope."""

    def __init__(
        self, connection: Connection, key: Mapping[str, Any], dimension: int, profile: AgentProfile | None
    ) -> None:
        self._connection = connection
        self._key = key
        self._dimension = dimension
        self.profile = profile

    @property
    def revision(self) -> int:
        return 0 if self.profile is None else self.profile.revision

    async def everything(self) -> AsyncIterator[Chunk]:
        """All live memories, episodes first, streamed."""
        key = {**self._key, "revision": -1}
        for tier, name in _CHANGED.items():
            async with self._connection.cursor(name=name, binary=True) as cursor:
                await cursor.execute(_SQL[name], key)
                while found := await cursor.fetchmany(CHUNK):
                    yield self._chunk([(tier, row) for row in found if row["live"]], ())

    async def since(self, revision: int) -> Chunk:
        """What came, changed or went after ``revision``."""
        key = {**self._key, "revision": revision}
        async with self._connection.pipeline():
            cursors = [(tier, await _execute(self._connection, _SQL[name], key)) for tier, name in _CHANGED.items()]
            gone = await self._connection.execute(_SQL["gone"], key)
            found = [(tier, row) for tier, cursor in cursors for row in await cursor.fetchall()]
            dead = [row["memory_id"] for row in await gone.fetchall()]
        dead += [row["id"] for _, row in found if not row["live"]]
        return self._chunk([pair for pair in found if pair[1]["live"]], [MemoryId(each) for each in dead])

    def _chunk(self, found: Sequence[tuple[Tier, rows.Row]], gone: Sequence[MemoryId]) -> Chunk:
        return Chunk(
            entries=[_entry(tier, row) for tier, row in found],
            vectors=_halves([row["half"] for _, row in found], self._dimension),
            gone=gone,
        )


async def _execute(connection: Connection, statement: LiteralString, key: Mapping[str, Any]) -> AsyncCursor[rows.Row]:
    """Never prepared: a plan that knows the values leaves out partitions, and chooses the right index."""
    return await connection.cursor(binary=True).execute(statement, key, prepare=False)


def entry_of(memory: Memory, *, words: str | None = None, source_id: MemoryId | None = None) -> Entry:
    """The memory as an index takes it; ``words`` is its content hash, if known."""
    return Entry(
        id=memory.id,
        tier=memory.tier,
        text=indexed_text(memory),
        words=words or content_hash(memory.content),
        created_at=memory.created_at,
        importance=memory.importance,
        outcome=memory.outcome,
        access_count=memory.access_count,
        expires_at=memory.expires_at,
        session_id=None if memory.session_id is None else SessionId(memory.session_id),
        speaker=memory.speaker,
        user_id=memory.user_id,
        source_id=source_id or next(iter(memory.source_ids), None),
    )


def _entry(tier: Tier, row: rows.Row) -> Entry:
    return entry_of(rows.OF_TIER[tier](row), words=row.get("content_hash"), source_id=row.get("source_id"))


def _halves(parts: Iterable[bytes | None], dimension: int) -> HalfVectors:
    """Vectors from the binary form of ``halfvec``: two numbers of 16 bits, then big-endian half precision."""
    nothing = bytes(2 * dimension)
    joined = b"".join(nothing if part is None else part[_HALF_HEADER:] for part in parts)
    return np.frombuffer(joined, dtype=">f2").reshape(-1, dimension).astype(np.float16)


def _of_tier(wanted: Sequence[Wanted], tier: Tier) -> dict[str, Any]:
    chosen = [each for each in wanted if each.tier is tier]
    return {"ids": [each.id for each in chosen], "moments": [each.created_at for each in chosen]}
