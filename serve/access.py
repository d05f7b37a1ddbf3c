"""Access statistics, counted in memory and written in batches: a read never waits for them.

What a replica has not written yet is lost with it; these are statistics, not memories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from memory.errors import Unavailable
from memory.records import Memory, TenantId, Tier
from stores.postgres.access import Access, AccessStore

logger = logging.getLogger(__name__)
MAX_BUFFER = 100_000  # memories; more than this in one flush interval are not counted


class AccessBuffer:
    """Counts what was returned; a background task writes it."""

    def __init__(self, store: AccessStore, *, flush_s: float) -> None:
        self._store = store
        self._flush_s = flush_s
        self._counts: dict[tuple[TenantId, Memory], int] = {}
        self._seen: dict[tuple[TenantId, Tier, str], tuple[int, datetime, datetime]] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def count(self, tenant_id: TenantId, memories: Iterable[Memory]) -> None:
        now = datetime.now(UTC)
        for memory in memories:
            key = (tenant_id, memory.tier, str(memory.id))
            if len(self._seen) < MAX_BUFFER or key in self._seen:
                before, _, _ = self._seen.get(key, (0, now, now))
                self._seen[key] = (before + 1, now, memory.created_at)

    def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="access-flush")

    async def close(self) -> None:
        """Stop the task and write what is left."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.flush()

    async def flush(self) -> None:
        seen, self._seen = self._seen, {}
        if seen:
            await self._store.record(seen)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._flush_s)
            try:
                await self.flush()
            except Unavailable as exc:
                logger.warning("access statistics of %.1f s are lost: %s", self._flush_s, exc)
