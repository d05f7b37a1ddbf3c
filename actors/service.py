"""What one shard runs: a worker per partition it owns, following the assignments in PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from actors.preparation import Preparation
from actors.worker import PartitionWorker
from configs.settings import Settings
from memory.errors import Misconfigured, Unavailable
from memory.ports import Classifier, Embedder
from memory.records import Partition
from stores.postgres.database import Database
from stores.postgres.ledger import LedgerStore
from stores.postgres.shards import ShardStore
from stores.postgres.writes import Ownership, WriteStore
from stores.tasks import end
from stores.valkey.connection import open_valkey
from stores.valkey.ingest import PartitionReader
from stores.valkey.working import WorkingMemoryStore

logger = logging.getLogger(__name__)
FOLLOW_S = 1.0  # how soon a shard notices that it gained or lost a partition
MONTHS_CHECK_S = 3_600.0


class ShardService:
    """Everything of a shard but the actor around it."""

    def __init__(self, name: str, settings: Settings, *, embedder: Embedder, classifier: Classifier) -> None:
        self._name = name
        self._settings = settings
        self._preparation = Preparation(classifier, embedder)
        self._embedding_model = embedder.model
        self._workers: dict[Partition, tuple[PartitionWorker, asyncio.Task[None]]] = {}

    def owned(self) -> list[int]:
        """The partitions whose workers run now."""
        return sorted(partition for partition, (_, task) in self._workers.items() if not task.done())

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
        self._store = WriteStore(database, embedding_model=self._embedding_model)
        stack.push_async_callback(self._stop_all)

    async def _follow(self) -> None:
        while True:
            try:
                await self._adjust(await self._shards.owned(self._name))
            except Unavailable as exc:
                logger.warning("assignments cannot be read: %s", exc)
            await asyncio.sleep(FOLLOW_S)

    async def _adjust(self, owned: Mapping[Partition, int]) -> None:
        for partition, (worker, task) in list(self._workers.items()):
            if task.done() or owned.get(partition) != worker.owner.epoch:
                await self._stop(partition)
        for partition, epoch in owned.items():
            if partition not in self._workers:
                self._start(Ownership(partition=partition, shard=self._name, epoch=epoch))

    def _start(self, owner: Ownership) -> None:
        reader = PartitionReader(self._valkey, owner.partition, f"{self._name}:{owner.epoch}")
        worker = PartitionWorker(
            owner, reader, self._preparation, self._store, self._ledger, self._working, self._settings.ingest
        )
        task = asyncio.create_task(worker.run(), name=f"partition-{owner.partition}")
        self._workers[owner.partition] = (worker, task)

    async def _stop(self, partition: Partition) -> None:
        _, task = self._workers.pop(partition)
        await end(task)

    async def _stop_all(self) -> None:
        await end(*(task for _, task in self._workers.values()))
        self._workers.clear()

    async def _keep_months(self) -> None:
        while True:
            try:
                await self._store.ensure_months_ahead(datetime.now(UTC))
            except Unavailable as exc:
                logger.warning("month partitions cannot be created ahead: %s", exc)
            await asyncio.sleep(MONTHS_CHECK_S)
