"""Facts of untrusted channels: kept apart from the live ones until somebody releases them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory.errors import NotFound
from memory.ports import Vectors
from memory.records import AgentId, Memory, MemoryId, Partition, TenantId, UserId
from stores.postgres import cursors, queries, rows
from stores.postgres.agents import lock_agent
from stores.postgres.beliefs import meet, settle
from stores.postgres.database import Connection, Database

_SQL = queries.load("quarantine")
_MEMORIES, _WRITES = queries.load("memories"), queries.load("writes")
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)
_LAST_ID = UUID(int=2**128 - 1)


@dataclass(frozen=True, kw_only=True)
class Released:
    """The live fact, and the agent's revision that says so."""

    memory: Memory
    revision: int


async def hold(connection: Connection, values: Mapping[str, Any]) -> MemoryId:
    """Put a fact into quarantine, inside the transaction that stores its episode."""
    (row,) = await (await connection.execute(_SQL["hold"], values)).fetchall()
    return MemoryId(row["id"])


async def find_quarantined(
    connection: Connection, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId
) -> dict[str, Any] | None:
    key = {"id": memory_id, "tenant_id": tenant_id, "agent_id": agent_id}
    return await (await connection.execute(_SQL["get_quarantined"], key)).fetchone()


class QuarantineStore:
    """Quarantined facts of agents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_page(
        self, tenant_id: TenantId, agent_id: AgentId, *, user_id: UserId | None, limit: int, cursor: str | None
    ) -> tuple[list[Memory], str | None]:
        """One page, newest first, and the next page's cursor. Raises ``InvalidInput`` for a strange cursor."""
        before, before_id = cursors.decode(cursor) if cursor else (_LATEST, _LAST_ID)
        values = {
            "tenant_id": tenant_id,
            "agent_id": agent_id,
            "user_id": user_id,
            "before": before,
            "before_id": before_id,
            "limit": limit + 1,
        }
        async with self._database.transaction(tenant_id) as connection:
            found = await (await connection.execute(_SQL["list_quarantined"], values)).fetchall()
        page = [rows.quarantined(row) for row in found[:limit]]
        return page, cursors.encode(page[-1].recorded_at, page[-1].id) if len(found) > limit else None

    async def get(self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId) -> Memory:
        """Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            return rows.quarantined(await _found(connection, tenant_id, agent_id, memory_id))

    async def release(
        self,
        tenant_id: TenantId,
        agent_id: AgentId,
        memory_id: MemoryId,
        *,
        vector: Vectors,
        model: str,
        partition: Partition,
    ) -> Released:
        """Make it a live fact; one that says the same takes it in. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            before = await _found(connection, tenant_id, agent_id, memory_id)
            key = {"id": memory_id, "tenant_id": tenant_id, "agent_id": agent_id, "revision": revision}
            values = key | {"embedding": vector, "embedding_model": model}
            # Somebody looked at it and let it through, which outweighs how it came in.
            meeting = await meet(connection, before, correction=True)
            (row,) = await (await connection.execute(_SQL["release"], values)).fetchall()
            await settle(connection, row["id"], before | {"revision": revision}, meeting)
            if row["inserted"]:
                await _count(connection, before)
                await _remember(connection, key, before)
            else:
                await connection.execute(_SQL["move_sources"], key | {"into": row["id"]})
            audit = {"action": "release", "subject": str(memory_id), "details": Jsonb({"fact": str(row["id"])})}
            await connection.execute(_MEMORIES["audit"], key | audit)
        return Released(memory=rows.fact(row), revision=revision)


async def _found(connection: Connection, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId) -> dict[str, Any]:
    row = await find_quarantined(connection, tenant_id, agent_id, memory_id)
    if row is None:
        raise NotFound(f"agent {agent_id!r} has no fact {memory_id} in quarantine; list what there is")
    return row


async def _count(connection: Connection, row: Mapping[str, Any]) -> None:
    await connection.execute(_WRITES["count_fact"], {"namespace_id": row["namespace_id"], "added": 1})


async def _remember(connection: Connection, key: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """The history says that the fact was in quarantine before, in the words of any other change."""
    after = {"content": row["fact"], "importance": row["confidence"], "metadata": row["metadata"]}
    change = {
        "memory_id": key["id"],
        "event": "updated",
        "before": Jsonb(after | {"quarantined": True}),
        "after": Jsonb(after),
    }
    await connection.execute(_MEMORIES["add_history"], dict(key) | change)
