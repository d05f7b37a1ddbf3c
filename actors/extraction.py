"""The consumer of what waits for a model: stored episodes, and sessions that want a summary."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from actors.consumer import Consumer
from actors.preparation import Preparation
from actors.summaries import RunningSummaries
from configs.settings import ModelSettings
from memory.errors import Fenced, MnemorayError, Unavailable
from memory.records import ExtractionState, Interaction
from stores.postgres.writes import Ownership, Prepared, WriteStore, Written
from stores.valkey.ingest import Delivery, PartitionReader
from stores.valkey.working import WorkingMemoryStore

logger = logging.getLogger(__name__)
BLOCK_MS = 2_000

Ready = Callable[[], Awaitable[None]]


class ExtractionWorker(Consumer):
    """Gives a partition's episodes to the classifier, several at a time, and stores what it finds in their order.

    An episode that the model failed at has the rules' facts at once and stays in the stream; it is tried again later,
    so many times, and then the rules have the last word. While the model does not answer at all nothing is tried
    again, so that an outage uses up no attempts.
    """

    def __init__(
        self,
        owner: Ownership,
        reader: PartitionReader,
        preparation: Preparation,
        rules: Preparation,
        ready: Ready,
        store: WriteStore,
        working: WorkingMemoryStore,
        summaries: RunningSummaries,
        settings: ModelSettings,
        *,
        backoff_s: float,
    ) -> None:
        super().__init__(owner, reader, backoff_s=backoff_s)
        self._preparation = preparation
        self._rules = rules
        self._ready = ready
        self._store = store
        self._working = working
        self._summaries = summaries
        self._settings = settings

    async def _consume(self) -> bool:
        deliveries = await self._reader.read(self._settings.concurrency, BLOCK_MS)
        if deliveries:
            await self._handle(deliveries)
            return False
        return await self._reader.abandoned(self._retry_ms)

    async def _recover(self) -> bool:
        if not await self._reader.abandoned(self._retry_ms):
            return False
        await self._store.ping()
        await self._preparation.ready()
        try:
            await self._ready()
        except MnemorayError as exc:
            logger.warning("partition %d: nothing is extracted again yet: %s", self._owner.partition, exc)
            return False
        deliveries = await self._reader.reclaim(self._settings.concurrency, self._retry_ms)
        await self._handle(deliveries)
        return bool(deliveries)

    @property
    def _retry_ms(self) -> int:
        return int(self._settings.retry_after_s * 1_000)

    async def _handle(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.session is not None:
                await self._summaries.update(delivery.session)
        waiting = [(delivery, await self._episode(delivery)) for delivery in deliveries]
        await self._settle([delivery for delivery, episode in waiting if episode is None], Written())
        found = [(delivery, episode) for delivery, episode in waiting if episode is not None]
        for delivery, item in [*await self._asked(found), *await self._given_up(found)]:
            await self._store_one(delivery, item)

    async def _asked(self, found: Sequence[tuple[Delivery, Interaction]]) -> list[tuple[Delivery, Prepared]]:
        chosen = [(d, episode) for d, episode in found if d.attempts <= self._settings.max_deliveries]
        return await _prepared(self._preparation, chosen)

    async def _given_up(self, found: Sequence[tuple[Delivery, Interaction]]) -> list[tuple[Delivery, Prepared]]:
        """Those whose attempts all ended with the shard: they go to no model again."""
        chosen = [(d, episode) for d, episode in found if d.attempts > self._settings.max_deliveries]
        read = await _prepared(self._rules, chosen)
        return [(d, replace(item, classification=replace(item.classification, complete=False))) for d, item in read]

    async def _episode(self, delivery: Delivery) -> Interaction | None:
        if delivery.error is not None:
            logger.error("partition %d: an unreadable entry is dropped: %s", self._owner.partition, delivery.error)
        request = delivery.extraction
        return (
            None
            if request is None
            else await self._store.pending_episode(request.tenant_id, request.agent_id, request.memory_id)
        )

    async def _store_one(self, delivery: Delivery, item: Prepared) -> None:
        """One that cannot be stored is left to a later attempt, and takes no other with it."""
        try:
            await self._store_extracted(delivery, item)
        except (Fenced, Unavailable):
            raise
        except Exception:
            logger.exception("what was extracted from %s cannot be stored", item.interaction.id)
            if delivery.attempts > self._settings.max_deliveries:
                await self._settle([delivery], Written())

    async def _store_extracted(self, delivery: Delivery, item: Prepared) -> None:
        state = self._state(delivery, item)
        if state is ExtractionState.PENDING and delivery.attempts > 1:
            return  # the rules' facts are there since the first attempt
        written = await self._store.extract(self._owner, item, state=state)
        await self._settle([] if state is ExtractionState.PENDING else [delivery], written)

    def _state(self, delivery: Delivery, item: Prepared) -> ExtractionState:
        if item.classification.complete:
            return ExtractionState.DONE
        return ExtractionState.FAILED if delivery.attempts >= self._settings.max_deliveries else ExtractionState.PENDING

    async def _settle(self, deliveries: Sequence[Delivery], written: Written) -> None:
        for tenant_id, agent_id in written.skilled:
            revision = written.revisions[tenant_id, agent_id]
            await self._working.drop_skills(tenant_id, agent_id, self._owner.partition, revision=revision)
        if deliveries or written.revisions:
            await self._reader.settle(deliveries, revisions=written.revisions, settlements=[])


async def _prepared(
    preparation: Preparation, found: Sequence[tuple[Delivery, Interaction]]
) -> list[tuple[Delivery, Prepared]]:
    items = await preparation.prepare([episode for _, episode in found], [delivery.attempts for delivery, _ in found])
    return [(delivery, item) for (delivery, _), item in zip(found, items, strict=True)]
