"""Access statistics: they are no changes of a memory, and raise no revision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memory.records import MemoryId, TenantId, Tier
from stores.postgres import queries
from stores.postgres.database import Database

_SQL = queries.load("access")


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
        """Add counts and times of last access: one statement per tenant and tier."""
        groups: dict[tuple[TenantId, Tier], list[AccessKey]] = defaultdict(list)
        for key in sorted(counts, key=lambda key: key.id):
            groups[key.tenant_id, key.tier].append(key)
        for (tenant_id, tier), keys in groups.items():
            values = {
                "tenant_id": tenant_id,
                "ids": [key.id for key in keys],
                "created": [key.created_at for key in keys],
                "counts": [counts[key][0] for key in keys],
                "at": [counts[key][1] for key in keys],
            }
            async with self._database.transaction(tenant_id) as connection:
                await connection.execute(_SQL[tier.value], values)
