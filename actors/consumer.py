"""What every consumer of a partition's stream has in common: it goes on until it is cancelled or fenced off."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from memory.errors import Fenced, Unavailable
from stores.postgres.writes import Ownership
from stores.valkey.ingest import PartitionReader

logger = logging.getLogger(__name__)
MAX_BACKOFF_S = 30.0


class Consumer(ABC):
    """Entries that were delivered before come first, then new ones; after a failure it waits, longer each time."""

    def __init__(self, owner: Ownership, reader: PartitionReader, *, backoff_s: float) -> None:
        self._owner = owner
        self._reader = reader
        self._first_backoff_s = self._backoff_s = backoff_s

    @property
    def owner(self) -> Ownership:
        return self._owner

    async def run(self) -> None:
        """Consume until cancelled, or until another shard owns the partition."""
        recovering = True
        started = False
        while True:
            try:
                if not started:
                    await self._reader.ensure_group()
                    started = True
                recovering = await (self._recover() if recovering else self._consume())
                self._backoff_s = self._first_backoff_s
            except Fenced:
                logger.info("partition %d belongs to another shard now", self._owner.partition)
                return
            except Unavailable as exc:
                logger.warning("partition %d waits: %s", self._owner.partition, exc)
                recovering = True
                await self._back_off()
            except Exception:
                logger.exception(
                    "partition %d: a batch failed, its entries are retried one by one", self._owner.partition
                )
                recovering = True
                await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)

    @abstractmethod
    async def _recover(self) -> bool:
        """Handle entries that were delivered before; returns whether some are left."""

    @abstractmethod
    async def _consume(self) -> bool:
        """Handle the next new entries; returns whether entries wait to be recovered."""
