"""The write ledger and its dead letters."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from memory.errors import NotFound
from memory.records import AgentId, Interaction, MemoryId, Partition, Settlement, TenantId, WriteState
from stores.postgres import cursors, queries
from stores.postgres.database import Connection, Database

logger = logging.getLogger(__name__)
_SQL = queries.load("ledger")
_NIL = UUID(int=0)


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """A settlement with what else the ledger keeps."""

    settlement: Settlement
    agent_id: AgentId
    accepted_at: datetime
    idempotency_hash: str | None


@dataclass(frozen=True, kw_only=True)
class Found:
    settlement: Settlement
    agent_id: AgentId
    settled_at: datetime


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    id: MemoryId
    agent_id: AgentId
    attempts: int
    error: str
    content: str  # its first 500 characters
    failed_at: datetime


async def settle(connection: Connection, tenant_id: TenantId, entries: Sequence[LedgerEntry]) -> None:
    """Write the ledger rows, inside the transaction that stores what they speak of."""
    async with connection.cursor() as cursor:
        await cursor.executemany(_SQL["settle"], [_values(tenant_id, entry) for entry in entries])


def _values(tenant_id: TenantId, entry: LedgerEntry) -> dict[str, Any]:
    settlement = entry.settlement
    return {
        "operation_id": settlement.operation_id,
        "tenant_id": tenant_id,
        "agent_id": entry.agent_id,
        "state": settlement.state,
        "reason": settlement.reason,
        "memory_ids": list(settlement.memory_ids),
        "idempotency_hash": entry.idempotency_hash,
        "attempts": settlement.attempts,
        "accepted_at": entry.accepted_at,
    }


async def find_idempotent(
    connection: Connection, tenant_id: TenantId, agent_id: AgentId, hashes: Sequence[str]
) -> dict[str, UUID]:
    """The first write under each key that was used before."""
    key = {"tenant_id": tenant_id, "agent_id": agent_id, "hashes": list(hashes)}
    rows = await (await connection.execute(_SQL["find_idempotent"], key)).fetchall()
    return {row["idempotency_hash"]: row["operation_id"] for row in rows}


class LedgerStore:
    """How accepted writes ended."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, tenant_id: TenantId, memory_id: MemoryId) -> Found | None:
        """The write's end; ``None`` while it is pending, and for another tenant's."""
        async with self._database.transaction(tenant_id) as connection:
            key = {"id": memory_id, "tenant_id": tenant_id}
            row = await (await connection.execute(_SQL["find"], key)).fetchone()
        return None if row is None else _found(row)

    async def counts(self, tenant_id: TenantId) -> dict[WriteState, int]:
        async with self._database.transaction(tenant_id) as connection:
            rows = await (await connection.execute(_SQL["counts"], {"tenant_id": tenant_id})).fetchall()
        return {WriteState(row["state"]): row["writes"] for row in rows}

    async def bury(
        self, partition: Partition, interaction: Interaction | None, *, payload: bytes, error: str, attempts: int
    ) -> Settlement | None:
        """Make a write a dead letter; one that was deleted meanwhile is rejected.

        One that nobody can read has no tenant to keep it for and is only logged.
        """
        if interaction is None:
            logger.error("an unreadable entry of partition %d is removed: %s: %r", partition, error, payload[:2000])
            return None
        settlement = Settlement(
            operation_id=interaction.id, state=WriteState.DEAD_LETTERED, reason=error[:2000], attempts=attempts
        )
        async with self._database.transaction(interaction.tenant_id) as connection:
            letter = _letter(partition, interaction, payload, settlement)
            if (await connection.execute(_SQL["add_dead_letter"], letter)).rowcount == 0:
                settlement = replace(settlement, state=WriteState.REJECTED, reason="deleted before it was stored")
            entry = LedgerEntry(
                settlement=settlement,
                agent_id=interaction.agent_id,
                accepted_at=interaction.accepted_at,
                idempotency_hash=None,
            )
            await settle(connection, interaction.tenant_id, [entry])
        return settlement

    async def list_page(
        self, tenant_id: TenantId, *, limit: int, cursor: str | None
    ) -> tuple[list[DeadLetter], str | None]:
        """Dead letters, oldest first, and the next page's cursor. Raises ``InvalidInput`` for a strange cursor."""
        after, after_id = cursors.decode(cursor) if cursor else (datetime(1, 1, 2, tzinfo=UTC), _NIL)
        values = {"tenant_id": tenant_id, "after": after, "after_id": after_id, "limit": limit + 1}
        async with self._database.transaction(tenant_id) as connection:
            rows = await (await connection.execute(_SQL["list_dead_letters"], values)).fetchall()
        letters = [DeadLetter(**row) for row in rows[:limit]]
        more = len(rows) > limit
        return letters, cursors.encode(letters[-1].failed_at, letters[-1].id) if more else None

    @asynccontextmanager
    async def replaying(self, tenant_id: TenantId, memory_id: MemoryId) -> AsyncIterator[bytes]:
        """The payload of a dead letter; it stays one unless the block ends well. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            row = await _remove(connection, tenant_id, memory_id)
            await connection.execute(_SQL["reopen"], {"id": memory_id, "tenant_id": tenant_id})
            yield row["payload"]

    async def drop(self, tenant_id: TenantId, memory_id: MemoryId) -> AgentId:
        """Give a dead letter up; returns its agent. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            row = await _remove(connection, tenant_id, memory_id)
            values = {"id": memory_id, "tenant_id": tenant_id, "reason": "dropped by the operator"}
            await connection.execute(_SQL["reject"], values)
        return AgentId(row["agent_id"])


async def _remove(connection: Connection, tenant_id: TenantId, memory_id: MemoryId) -> dict[str, Any]:
    key = {"id": memory_id, "tenant_id": tenant_id}
    row = await (await connection.execute(_SQL["remove_dead_letter"], key)).fetchone()
    if row is None:
        raise NotFound(f"no dead letter {memory_id}; list them with GET /v1/dead-letters")
    return row


def _letter(partition: Partition, interaction: Interaction, payload: bytes, settlement: Settlement) -> dict[str, Any]:
    return {
        "id": interaction.id,
        "tenant_id": interaction.tenant_id,
        "agent_id": interaction.agent_id,
        "user_id": interaction.user_id,
        "accepted_at": interaction.accepted_at,
        "partition": partition,
        "payload": payload,
        "content": interaction.content,
        "error": settlement.reason,
        "attempts": settlement.attempts,
    }


def _found(row: dict[str, Any]) -> Found:
    settlement = Settlement(
        operation_id=MemoryId(row["operation_id"]),
        state=WriteState(row["state"]),
        reason=row["reason"],
        memory_ids=tuple(row["memory_ids"]),
        attempts=row["attempts"],
    )
    return Found(settlement=settlement, agent_id=AgentId(row["agent_id"]), settled_at=row["settled_at"])
