"""Single memories: read, list, change, delete."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from memory.errors import Conflict, InvalidInput, NotFound
from memory.normalise import content_hash
from memory.ports import Vectors
from memory.records import (
    AgentId,
    Memory,
    MemoryId,
    Outcome,
    Partition,
    RetentionTier,
    SessionId,
    TenantId,
    Tier,
    UserId,
    expires_at,
)
from stores.postgres import cursors, queries, rows
from stores.postgres.agents import lock_agent
from stores.postgres.database import Connection, Database
from stores.postgres.quarantine import find_quarantined

_SQL = queries.load("memories")
_PERSISTENT = (Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL)
_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)
_LAST_ID = UUID(int=2**128 - 1)


@dataclass(frozen=True, kw_only=True)
class Patch:
    """What changes; ``None`` stays. ``vector`` and ``model`` belong to ``content``."""

    content: str | None = None
    importance: float | None = None
    outcome: Outcome | None = None
    retention_tier: RetentionTier | None = None
    metadata: Mapping[str, Any] | None = None
    vector: Vectors | None = None
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class Updated:
    memory: Memory
    revision: int
    rederive: bool  # the episode waits for extraction now


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """What left, and the revision that says so."""

    revision: int
    deleted_ids: Sequence[MemoryId] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Event:
    event: Literal["created", "updated", "superseded"]
    revision: int
    at: datetime
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class MemoryStore:
    """Memories of any persistent tier, by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId) -> Memory:
        """The live memory. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            return (await _get(connection, tenant_id, agent_id, memory_id))[0]

    async def list_page(
        self,
        tenant_id: TenantId,
        agent_id: AgentId,
        *,
        tier: Tier | None = None,
        user_id: UserId | None = None,
        session_id: SessionId | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[list[Memory], str | None]:
        """One page, newest first, and the next page's cursor. Raises ``InvalidInput`` for a strange cursor."""
        if tier is Tier.WORKING:
            raise InvalidInput("working memory is read from its session: GET sessions/{session_id}")
        before, before_id = cursors.decode(cursor) if cursor else (_LATEST, _LAST_ID)
        values = {
            "tenant_id": tenant_id,
            "agent_id": agent_id,
            "user_id": user_id,
            "session_id": session_id,
            "since": since or _EARLIEST,
            "until": until or _LATEST,
            "before": before,
            "before_id": before_id,
            "limit": limit + 1,
        }
        async with self._database.transaction(tenant_id) as connection:
            tiers = [tier] if tier else _PERSISTENT
            pages = [await _page(connection, each, values) for each in tiers]
        merged = list(heapq.merge(*pages, key=_place, reverse=True))
        page = merged[:limit]
        more = len(merged) > limit
        return page, cursors.encode(page[-1].created_at, page[-1].id) if more else None

    async def history(self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId) -> list[Event]:
        """How the memory changed, oldest first. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            memory, _ = await _get(connection, tenant_id, agent_id, memory_id)
            key = {"id": memory_id, "tenant_id": tenant_id, "agent_id": agent_id}
            changes = [Event(**row) for row in await _rows(connection, "history", key)]
        first = changes[0].before if changes and changes[0].before else _visible(memory)
        revision = 0 if changes else memory.revision
        return [Event(event="created", revision=revision, at=memory.recorded_at, after=first), *changes]

    async def update(
        self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId, patch: Patch, *, partition: Partition
    ) -> Updated:
        """Change a memory and keep what it was. Raises ``NotFound``, ``Conflict`` or ``InvalidInput``."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            before, _ = await _get(connection, tenant_id, agent_id, memory_id)
            _check(before, patch)
            values = _patch_values(before, patch) | {"tenant_id": tenant_id, "revision": revision}
            after = await _update(connection, before.tier, values)
            await _remember_change(connection, tenant_id, before, after)
            rederive = before.tier is Tier.EPISODIC and patch.content is not None
            if rederive:
                derived = await _derived(connection, tenant_id, [memory_id])
                await _Removal(connection, tenant_id, agent_id, revision).remove(derived)
        return Updated(
            memory=after,
            revision=revision,
            rederive=rederive and after.details["extraction"] == "pending",
        )

    async def delete(
        self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId, *, partition: Partition
    ) -> Deletion:
        """Remove a memory and what was derived from it alone. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            memory, _ = await _get(connection, tenant_id, agent_id, memory_id)
            derived = await _derived(connection, tenant_id, [memory_id])
            doomed = [(memory_id, memory.tier), *derived]
            await _Removal(connection, tenant_id, agent_id, revision).remove(doomed, action="delete")
        return Deletion(revision=revision, deleted_ids=[each for each, _ in doomed])

    async def delete_pending(
        self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId, *, partition: Partition
    ) -> Deletion:
        """Bury an accepted write before it is stored: its shard will reject it."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            doomed = [(memory_id, Tier.EPISODIC)]
            await _Removal(connection, tenant_id, agent_id, revision).remove(doomed, action="delete")
        return Deletion(revision=revision, deleted_ids=[memory_id])

    async def delete_user(
        self, tenant_id: TenantId, agent_id: AgentId, user_id: UserId, *, partition: Partition
    ) -> Deletion:
        """Remove everything this agent stored of one user, and what was derived from it alone.

        Writes of the user that were accepted before and are not stored yet will be rejected.
        """
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            key = {"tenant_id": tenant_id, "agent_id": agent_id, "user_id": user_id}
            own = [(MemoryId(r["id"]), Tier(r["tier"])) for r in await _rows(connection, "user_memories", key)]
            derived = await _derived(connection, tenant_id, [each for each, _ in own])
            doomed = list(dict.fromkeys([*own, *derived]))
            await _Removal(connection, tenant_id, agent_id, revision).remove(doomed, action="delete_user")
            for name in ("note_user_deletion", "delete_user_dead_letters", "delete_sessions"):
                await connection.execute(_SQL[name], key)
        return Deletion(revision=revision, deleted_ids=[each for each, _ in doomed])


async def _rows(connection: Connection, name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return await (await connection.execute(_SQL[name], values)).fetchall()


async def _get(
    connection: Connection, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId
) -> tuple[Memory, dict[str, Any]]:
    key = {"id": memory_id, "tenant_id": tenant_id, "agent_id": agent_id}
    for tier in _PERSISTENT:
        if found := await _rows(connection, f"get_{tier.value}", key):
            memory = rows.OF_TIER[tier](found[0])
            sources = [MemoryId(row["source_id"]) for row in await _rows(connection, "sources", key)]
            return replace(memory, source_ids=sources or memory.source_ids), found[0]
    if held := await find_quarantined(connection, tenant_id, agent_id, memory_id):
        sources = [MemoryId(row["source_id"]) for row in await _rows(connection, "sources", key)]
        return replace(rows.quarantined(held), source_ids=sources), held
    raise NotFound(f"agent {agent_id!r} has no memory {memory_id}")


async def _page(connection: Connection, tier: Tier, values: Mapping[str, Any]) -> list[Memory]:
    return [rows.OF_TIER[tier](row) for row in await _rows(connection, f"list_{tier.value}", values)]


def _place(memory: Memory) -> tuple[datetime, UUID]:
    return memory.created_at, memory.id


def _check(memory: Memory, patch: Patch) -> None:
    """A change that its tier does not have is refused, not ignored."""
    if memory.details.get("quarantined"):
        raise Conflict(f"the fact {memory.id} is in quarantine; release it first, or delete it")
    if memory.tier is Tier.PROCEDURAL and (patch.content or patch.importance is not None):
        raise InvalidInput("a skill's content and success rate are not patched: PUT the skill, or POST its outcomes")
    if memory.tier is not Tier.EPISODIC and (patch.outcome or patch.retention_tier):
        raise InvalidInput("only episodes have an outcome and a retention tier")


def _patch_values(memory: Memory, patch: Patch) -> dict[str, Any]:
    expires = expires_at(memory.recorded_at, patch.retention_tier) if patch.retention_tier else None
    return {
        "id": memory.id,
        "created_at": memory.created_at,
        "content": patch.content,
        "content_hash": None if patch.content is None else content_hash(patch.content),
        "vector": patch.vector,
        "model": patch.model,
        "importance": patch.importance,
        "outcome": patch.outcome,
        "retention_tier": patch.retention_tier,
        "expires_at": expires,
        "metadata": None if patch.metadata is None else Jsonb(dict(patch.metadata)),
    }


async def _update(connection: Connection, tier: Tier, values: Mapping[str, Any]) -> Memory:
    try:
        (row,) = await _rows(connection, f"update_{tier.value}", values)
    except psycopg.errors.UniqueViolation as exc:
        raise Conflict("another fact of this namespace says the same; delete one of them") from exc
    return rows.OF_TIER[tier](row)


def _visible(memory: Memory) -> dict[str, Any]:
    """What the history keeps of a version."""
    return {
        "content": memory.content,
        "importance": memory.importance,
        "outcome": memory.outcome,
        "metadata": dict(memory.metadata),
    }


async def _remember_change(connection: Connection, tenant_id: TenantId, before: Memory, after: Memory) -> None:
    values = {
        "tenant_id": tenant_id,
        "agent_id": after.agent_id,
        "memory_id": after.id,
        "revision": after.revision,
        "event": "updated",
        "before": Jsonb(_visible(before)),
        "after": Jsonb(_visible(after)),
    }
    await connection.execute(_SQL["add_history"], values)


async def _derived(connection: Connection, tenant_id: TenantId, ids: Sequence[MemoryId]) -> list[tuple[MemoryId, Tier]]:
    found = await _rows(connection, "derived_only_from", {"ids": list(ids), "tenant_id": tenant_id})
    return [(MemoryId(row["memory_id"]), Tier(row["tier"])) for row in found]


class _Removal:
    """Takes memories out of every table, inside a transaction that holds the agent's lock."""

    def __init__(self, connection: Connection, tenant_id: TenantId, agent_id: AgentId, revision: int) -> None:
        self._connection = connection
        self._owner = {"tenant_id": tenant_id, "agent_id": agent_id, "revision": revision}

    async def remove(self, doomed: Sequence[tuple[MemoryId, Tier]], *, action: str | None = None) -> None:
        """Delete rows, history and queue copies; leave tombstones and, for an ``action``, an audit entry."""
        ids = [each for each, _ in doomed]
        values = self._owner | {"ids": ids}
        await self._delete_rows(doomed)
        await self._connection.execute(_SQL["delete_sources"], values)
        await self._connection.execute(_SQL["repoint_sources"], values)
        await self._connection.execute(_SQL["delete_history"], values)
        await self._connection.execute(_SQL["delete_dead_letters"], values)
        await self._connection.execute(_SQL["bury"], values)
        if action is not None:
            details = Jsonb({"memories": len(ids), "revision": self._owner["revision"]})
            audit = {"action": action, "subject": " ".join(str(each) for each in ids[:100]), "details": details}
            await self._connection.execute(_SQL["audit"], self._owner | audit)

    async def _delete_rows(self, doomed: Sequence[tuple[MemoryId, Tier]]) -> None:
        by_tier = {tier: [each for each, of in doomed if of is tier] for tier in _PERSISTENT}
        episodes = await self._delete(Tier.EPISODIC, by_tier)
        for (user_id, session_id), removed in Counter((r["user_id"], r["session_id"]) for r in episodes).items():
            session = {"user_id": user_id, "session_id": session_id, "removed": removed}
            await self._connection.execute(_SQL["uncount_episodes"], self._owner | session)
        facts = await self._delete(Tier.SEMANTIC, by_tier)
        if by_tier[Tier.SEMANTIC]:  # live or in quarantine
            values = self._owner | {"ids": by_tier[Tier.SEMANTIC]}
            await self._connection.execute(_SQL["delete_quarantined"], values)
        for namespace_id, removed in Counter(row["namespace_id"] for row in facts).items():
            await self._connection.execute(_SQL["uncount_facts"], {"namespace_id": namespace_id, "removed": removed})
        if by_tier[Tier.PROCEDURAL]:
            values = self._owner | {"ids": by_tier[Tier.PROCEDURAL]}
            await self._connection.execute(_SQL["delete_procedural"], values)

    async def _delete(self, tier: Tier, by_tier: Mapping[Tier, Sequence[MemoryId]]) -> list[dict[str, Any]]:
        if not by_tier[tier]:
            return []
        return await _rows(self._connection, f"delete_{tier.value}", self._owner | {"ids": list(by_tier[tier])})
