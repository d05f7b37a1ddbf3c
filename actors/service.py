"""What one shard runs: a worker per partition it owns, following the assignments in PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

from actors.extraction import ExtractionWorker
from actors.preparation import Preparation
from actors.summaries import RunningSummaries
from actors.worker import PartitionWorker
from configs.settings import Settings
from memory.errors import Misconfigured, Unavailable
from memory.ports import Classifier, Embedder
from memory.records import Partition
from memory.rules import DeferringClassifier
from stores.models.chat import ChatModel, Count
from stores.models.classifier import ModelClassifier
from stores.models.prompts import load_prompt
from stores.models.summarizer import open_summarizer
from stores.models.tokens import BpeCounter
from stores.postgres.database import Database
from stores.postgres.ledger import LedgerStore
from stores.postgres.shards import ShardStore
from stores.postgres.writes import Ownership, WriteStore
from stores.tasks import end
from stores.valkey import keys
from stores.valkey.connection import open_valkey
from stores.valkey.ingest import ExtractionQueue, PartitionReader
from stores.valkey.working import WorkingMemoryStore

logger = logging.getLogger(__name__)
FOLLOW_S = 1.0  # how soon a shard notices that it gained or lost a partition
MONTHS_CHECK_S = 3_600.0


async def _always_ready() -> None:
    """Rules need no server."""


@dataclass(frozen=True, kw_only=True)
class _Working:
    """The workers of one partition."""

    owner: Ownership
    tasks: Sequence[asyncio.Task[None]]

    def ended(self) -> bool:
        return any(task.done() for task in self.tasks)


class ShardService:
    """Everything of a shard but the actor around it."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        embedder: Embedder,
        classifier: Classifier,
        count: Count = lambda model, outcome: None,
    ) -> None:
        """``classifier`` answers at once; ``count`` hears how each attempt of a language model ended."""
        self._name = name
        self._settings = settings
        self._count = count
        self._embedder = embedder
        self._rules = self._preparing(classifier)
        self._workers: dict[Partition, _Working] = {}

    def owned(self) -> list[int]:
        """The partitions whose workers run now."""
        return sorted(partition for partition, working in self._workers.items() if not working.ended())

    async def run(self) -> None:
        """Follow the assignments until cancelled."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            following = asyncio.create_task(self._follow(), name="follow-assignments")
            keeping = asyncio.create_task(self._keep_months(), name="keep-months")
            stack.push_async_callback(end, following, keeping)
            done, _ = await asyncio.wait((following, keeping), return_when=asyncio.FIRST_COMPLETED)
            for task in done:  # neither ends by itself but with an error
                task.result()

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        if settings.postgres_dsn is None or settings.redis_url is None:
            raise Misconfigured("a shard needs postgres_dsn and redis_url")
        database = Database(settings.postgres_dsn, pool_size=settings.postgres_pool_size)
        await database.open()
        stack.push_async_callback(database.close)
        self._valkey = open_valkey(settings.redis_url, cluster=settings.redis_cluster, blocking=True)
        stack.push_async_callback(self._valkey.aclose)
        self._shards, self._ledger = ShardStore(database), LedgerStore(database)
        self._working = WorkingMemoryStore(self._valkey, settings.working)
        self._store = WriteStore(database, embedding_model=self._embedder.model)
        await self._open_models(stack)
        stack.push_async_callback(self._stop_all)

    async def _open_models(self, stack: AsyncExitStack) -> None:
        """Without a model the rules read each write at once; with one, writes do not wait for it."""
        models, counter = self._settings.models, BpeCounter()
        summarizer = open_summarizer(models, counter, count=self._count, stack=stack)
        self._summaries = RunningSummaries(self._working, summarizer, max_tokens=self._settings.working.summary_tokens)
        self._preparation, self._extracting, self._ready = self._rules, self._rules, _always_ready
        if models.classifier is None:
            return
        chat = ChatModel(models, models.classifier, count=self._count)
        stack.push_async_callback(chat.aclose)
        prompt = load_prompt("classify", folder=models.prompts)
        reading = ModelClassifier(chat, prompt, self._rules.classifier, counter, models)
        self._preparation = self._preparing(DeferringClassifier())
        self._extracting, self._ready = self._preparing(reading), reading.ready

    def _preparing(self, classifier: Classifier) -> Preparation:
        return Preparation(classifier, self._embedder, promotion_floor=self._settings.ingest.promotion_floor)

    async def _follow(self) -> None:
        while True:
            try:
                await self._adjust(await self._shards.owned(self._name))
            except Unavailable as exc:
                logger.warning("assignments cannot be read: %s", exc)
            await asyncio.sleep(FOLLOW_S)

    async def _adjust(self, owned: Mapping[Partition, int]) -> None:
        for partition, working in list(self._workers.items()):
            if working.ended() or owned.get(partition) != working.owner.epoch:
                await self._stop(partition)
        for partition, epoch in owned.items():
            if partition not in self._workers:
                self._start(Ownership(partition=partition, shard=self._name, epoch=epoch))

    def _start(self, owner: Ownership) -> None:
        tasks = [
            asyncio.create_task(self._writes(owner).run(), name=f"partition-{owner.partition}"),
            asyncio.create_task(self._extractions(owner).run(), name=f"extraction-{owner.partition}"),
        ]
        self._workers[owner.partition] = _Working(owner=owner, tasks=tasks)

    def _writes(self, owner: Ownership) -> PartitionWorker:
        return PartitionWorker(
            owner,
            PartitionReader(self._valkey, owner.partition, self._consumer(owner)),
            self._preparation,
            self._store,
            self._ledger,
            self._working,
            ExtractionQueue(self._valkey, owner.partition),
            self._settings.ingest,
        )

    def _extractions(self, owner: Ownership) -> ExtractionWorker:
        stream = keys.extractions(owner.partition)
        return ExtractionWorker(
            owner,
            PartitionReader(self._valkey, owner.partition, self._consumer(owner), stream=stream),
            self._extracting,
            self._rules,
            self._ready,
            self._store,
            self._working,
            self._summaries,
            self._settings.models,
            backoff_s=self._settings.ingest.retry_backoff_s,
        )

    def _consumer(self, owner: Ownership) -> str:
        return f"{self._name}:{owner.epoch}"

    async def _stop(self, partition: Partition) -> None:
        await end(*self._workers.pop(partition).tasks)

    async def _stop_all(self) -> None:
        await end(*(task for working in self._workers.values() for task in working.tasks))
        self._workers.clear()

    async def _keep_months(self) -> None:
        while True:
            try:
                await self._store.ensure_months_ahead(datetime.now(UTC))
            except Unavailable as exc:
                logger.warning("month partitions cannot be created ahead: %s", exc)
            await asyncio.sleep(MONTHS_CHECK_S)
