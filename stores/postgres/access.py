"""Access statistics: how often a memory was returned, and when last. They are no changes and raise no revision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from memory.records import MemoryId, TenantId, Tier
from stores.postgres import queries
from stores.postgres.database import Database

_SQL = queries.load("access")
_Batch = Sequence[tuple["AccessKey", tuple[int, datetime]]]


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """A memory of a persistent tier; ``created_at`` finds an episode's month."""

    tenant_id: TenantId
    tier: Tier
    id: MemoryId
    created_at: datetime


class AccessStore:
    """Writes counted accesses."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, counts: Mapping[AccessKey, tuple[int, datetime]]) -> None:
        """Add counts and times of last access; memories that are gone are passed over. Raises ``Unavailable``."""
        groups: dict[tuple[TenantId, Tier], list[tuple[AccessKey, tuple[int, datetime]]]] = defaultdict(list)
        for key, counted in counts.items():
            groups[key.tenant_id, key.tier].append((key, counted))
        for (tenant_id, tier), batch in groups.items():
            await self._record(tenant_id, tier, batch)

    async def _record(self, tenant_id: TenantId, tier: Tier, batch: _Batch) -> None:
        written = await self._touch(tenant_id, _SQL[tier.value], batch)
        # What is left is gone or is being changed. One row at a time holds no lock while it waits for one.
        for one in batch:
            if one[0].id not in written:
                await self._touch(tenant_id, _SQL[f"{tier.value}_one"], [one])

    async def _touch(self, tenant_id: TenantId, statement: LiteralString, batch: _Batch) -> set[UUID]:
        async with self._database.transaction(tenant_id) as connection:
            cursor = await connection.execute(statement, _parameters(tenant_id, batch))
            return {row["id"] for row in await cursor.fetchall()}


def _parameters(tenant_id: TenantId, batch: _Batch) -> dict[str, Any]:
    created = [key.created_at for key, _ in batch]
    return {
        "tenant_id": tenant_id,
        "ids": [key.id for key, _ in batch],
        "created": created,
        "counts": [count for _, (count, _) in batch],
        "at": [at for _, (_, at) in batch],
        "earliest": min(created),
        "latest": max(created),
    }
