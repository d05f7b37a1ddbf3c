"""Access statistics, counted in memory and written in batches: a read never waits for them.

What a replica has not written yet is lost with it; these are statistics, not memories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from memory.errors import Unavailable
from memory.records import Memory, TenantId, Tier
from stores.postgres.access import AccessKey, AccessStore
from stores.tasks import end

logger = logging.getLogger(__name__)
MAX_BUFFER = 100_000  # memories; more than this between two flushes are not counted


class AccessBuffer:
    """Counts what was returned; a background task writes it."""

    def __init__(self, store: AccessStore, *, flush_s: float) -> None:
        self._store = store
        self._flush_s = flush_s
        self._counts: dict[AccessKey, tuple[int, datetime]] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, tenant_id: TenantId, memories: Iterable[Memory]) -> None:
        now = datetime.now(UTC)
        for memory in memories:
            key = AccessKey(tenant_id=tenant_id, tier=memory.tier, id=memory.id, created_at=memory.created_at)
            if key.tier is Tier.WORKING:  # a message of a session is an episode
                key = replace(key, tier=Tier.EPISODIC)
            if key in self._counts or len(self._counts) < MAX_BUFFER:
                self._counts[key] = (self._counts.get(key, (0, now))[0] + 1, now)

    def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="access-flush")

    async def close(self) -> None:
        """Stop the task and write what is left."""
        if self._task is not None:
            await end(self._task)
        await self._flush()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._flush_s)
            await self._flush()

    async def _flush(self) -> None:
        counts, self._counts = self._counts, {}
        try:
            if counts:
                await self._store.record(counts)
        except Unavailable as exc:
            logger.warning("the access statistics of %d memories are lost: %s", len(counts), exc)
