"""The consumer of one partition's ingest stream."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from actors.consumer import Consumer
from actors.preparation import Preparation
from configs.settings import IngestSettings
from memory.errors import Fenced, Unavailable
from memory.records import Interaction, Settlement
from stores.postgres.ledger import LedgerStore
from stores.postgres.writes import Ownership, WriteStore, Written
from stores.valkey.codec import ExtractionRequest
from stores.valkey.ingest import Delivery, ExtractionQueue, PartitionReader
from stores.valkey.working import WorkingMemoryStore

logger = logging.getLogger(__name__)
ABANDONED_MS = 10_000  # an entry that was delivered and not settled for so long has nobody who works on it


class PartitionWorker(Consumer):
    """Moves one partition's entries from Valkey to PostgreSQL, in order, in micro-batches.

    New entries are handled in batches. Entries that were delivered before (this shard crashed, lost the partition,
    or a batch failed) are handled one by one, so that one poisoned entry cannot take others with it. The server
    counts deliveries before they are processed; an entry above the limit goes to the dead letters.
    """

    def __init__(
        self,
        owner: Ownership,
        reader: PartitionReader,
        preparation: Preparation,
        store: WriteStore,
        ledger: LedgerStore,
        working: WorkingMemoryStore,
        extractions: ExtractionQueue,
        settings: IngestSettings,
    ) -> None:
        super().__init__(owner, reader, backoff_s=settings.retry_backoff_s)
        self._preparation = preparation
        self._store = store
        self._ledger = ledger
        self._working = working
        self._extractions = extractions
        self._settings = settings
        self._reasons: dict[str, str] = {}  # entry id -> why its last attempt failed

    async def _consume(self) -> bool:
        """Handle the next new entries; returns whether entries wait to be recovered.

        A consumer that was fenced off while it read leaves what it got; in a quiet moment the owner looks for it.
        """
        deliveries = await self._reader.read(self._settings.batch_size, self._settings.block_ms)
        if not deliveries:
            return await self._reader.abandoned(ABANDONED_MS)
        await self._handle(deliveries)
        return False

    async def _recover(self) -> bool:
        """Handle entries that were delivered before; returns whether some are left."""
        if not await self._reader.abandoned(0):
            return False
        await self._store.ping()  # an outage of PostgreSQL, or of the embedder, must not use up attempts
        await self._preparation.ready()
        deliveries = await self._reader.reclaim(self._settings.batch_size, 0)
        failed = 0
        for delivery in deliveries:
            failed += not await self._handle_alone(delivery)
        if failed:
            await self._back_off()
        return bool(deliveries)

    async def _handle_alone(self, delivery: Delivery) -> bool:
        if delivery.error is None and delivery.attempts <= self._settings.max_attempts:
            try:
                await self._handle([delivery])
            except (Fenced, Unavailable):
                raise
            except Exception as exc:
                logger.exception("entry %s failed at attempt %d", delivery.entry_id, delivery.attempts)
                self._reasons[delivery.entry_id] = f"{type(exc).__name__}: {exc}"
                return False
            self._reasons.pop(delivery.entry_id, None)
        else:
            await self._bury(delivery)
        return True

    async def _bury(self, delivery: Delivery) -> None:
        """An entry that cannot be read, or failed too often, becomes a dead letter."""
        known = self._reasons.pop(delivery.entry_id, "the shard stopped while it was processed")
        reason = delivery.error or known
        settlement = await self._ledger.bury(
            self._owner.partition, delivery.interaction, payload=delivery.raw, error=reason, attempts=delivery.attempts
        )
        await self._reader.settle([delivery], revisions={}, settlements=[settlement] if settlement else [])

    async def _handle(self, deliveries: Sequence[Delivery]) -> None:
        unreadable = [delivery for delivery in deliveries if delivery.error is not None]
        for delivery in unreadable:
            await self._bury(delivery)
        await self._handle_writes([d for d in deliveries if d.kind == "write" and d.interaction is not None])

    async def _handle_writes(self, deliveries: Sequence[Delivery]) -> None:
        pairs = [(d.interaction, d.attempts) for d in deliveries if d.interaction is not None]
        if not pairs:
            return
        interactions, attempts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        prepared = await self._preparation.prepare(interactions, attempts)
        written = await self._store.persist(self._owner, prepared)
        # Before they are settled: a redelivered write asks for its extraction again, and a settled one never does.
        await self._extractions.add(
            [_extraction(item.interaction) for item in prepared if not item.classification.complete]
        )
        await self._finish(deliveries, written)

    async def _finish(self, deliveries: Sequence[Delivery], written: Written) -> None:
        settlements: list[Settlement] = list(written.settlements.values())
        for tenant_id, agent_id in written.skilled:
            revision = written.revisions[tenant_id, agent_id]
            await self._working.drop_skills(tenant_id, agent_id, self._owner.partition, revision=revision)
        await self._reader.settle(deliveries, revisions=written.revisions, settlements=settlements)


def _extraction(interaction: Interaction) -> ExtractionRequest:
    return ExtractionRequest(tenant_id=interaction.tenant_id, agent_id=interaction.agent_id, memory_id=interaction.id)
