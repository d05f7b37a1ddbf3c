"""The resident indexes of one API replica: loaded when asked for, kept current by deltas, bounded in bytes."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from configs.settings import RecallSettings
from memory.errors import MnemorayError
from memory.records import AgentProfile
from serve.metrics import Metrics
from serve.resident.index import ResidentIndex
from stores.postgres.recall import Scope
from stores.postgres.resident import Chunk, ResidentStore
from stores.tasks import end

logger = logging.getLogger(__name__)
BYTES_PER_MEMORY = 1_100  # about, at 384 dimensions; decides whether a scope can fit at all
INLINE_ROWS = 64  # a delta up to this size is applied on the event loop; a thread would cost more


@dataclass(kw_only=True, eq=False)
class Resident:
    """One index and how current it is. ``lock`` is held while it is read or changed."""

    scope: Scope
    index: ResidentIndex
    revision: int
    profile: AgentProfile | None
    world_facts: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ResidentCache:
    """Least recently used indexes leave when the bytes are used up."""

    def __init__(
        self, store: ResidentStore, empty: Callable[[], ResidentIndex], metrics: Metrics, settings: RecallSettings
    ) -> None:
        self._store = store
        self._empty = empty
        self._metrics = metrics
        self._settings = settings
        self._residents: OrderedDict[Scope, Resident] = OrderedDict()
        self._loads: dict[Scope, asyncio.Task[Resident]] = {}
        self._one_at_a_time = asyncio.Semaphore(1)  # a load is CPU-bound, and searches go on beside it

    async def close(self) -> None:
        for task in list(self._loads.values()):
            await end(task)

    @property
    def nbytes(self) -> int:
        return sum(resident.index.nbytes for resident in self._residents.values())

    async def get(self, scope: Scope) -> Resident | None:
        """The scope's index. A small one is loaded first; for a large one it is ``None`` until it is loaded.

        Raises ``Unavailable``.
        """
        if (resident := self._residents.get(scope)) is not None:
            self._residents.move_to_end(scope)
            self._metrics.resident_hits.inc()
            return resident
        self._metrics.resident_misses.inc()
        if scope in self._loads:
            return None
        size = await self._store.size(scope)
        if size * BYTES_PER_MEMORY > self._settings.resident_bytes:
            return None
        load = self._loads.get(scope) or self._start(scope)
        return await asyncio.shield(load) if size <= self._settings.load_first_below else None

    async def catch_up(self, resident: Resident, revision: int) -> None:
        """Bring the index to ``revision`` or later. Raises ``Unavailable``."""
        async with resident.lock:
            if resident.revision >= revision:
                return
            try:
                async with self._store.snapshot(resident.scope) as snapshot:
                    delta = await snapshot.since(resident.revision)
                await _apply(resident.index, delta)
            except BaseException:
                self.drop(resident.scope)  # it may be changed by half
                raise
            resident.revision, resident.profile = snapshot.revision, snapshot.profile
        self._metrics.resident_deltas.inc()
        self._evict()

    def drop(self, scope: Scope) -> None:
        """Forget the index, if there is one."""
        self._residents.pop(scope, None)
        if (load := self._loads.get(scope)) is not None:
            load.cancel()
        self._report()

    def _start(self, scope: Scope) -> asyncio.Task[Resident]:
        task = asyncio.create_task(self._load(scope), name=f"resident-load-{scope.agent_id}")
        self._loads[scope] = task
        task.add_done_callback(lambda done: self._loaded(scope, done))
        return task

    def _loaded(self, scope: Scope, task: asyncio.Task[Resident]) -> None:
        self._loads.pop(scope, None)
        if task.cancelled():
            return
        if (exc := task.exception()) is not None:
            if not isinstance(exc, MnemorayError):
                logger.error("loading the index of agent %r failed", scope.agent_id, exc_info=exc)
            return
        self._residents[scope] = task.result()
        self._metrics.resident_loads.inc()
        self._evict()

    async def _load(self, scope: Scope) -> Resident:
        index = self._empty()
        async with self._one_at_a_time, self._store.snapshot(scope) as snapshot:
            async for chunk in snapshot.everything():
                await asyncio.to_thread(index.put, chunk.entries, chunk.vectors)
        return Resident(scope=scope, index=index, revision=snapshot.revision, profile=snapshot.profile)

    def _evict(self) -> None:
        while len(self._residents) > 1 and self.nbytes > self._settings.resident_bytes:
            self._residents.popitem(last=False)
            self._metrics.resident_evictions.inc()
        self._report()

    def _report(self) -> None:
        self._metrics.resident_bytes.set(self.nbytes)
        self._metrics.resident_indexes.set(len(self._residents))


async def _apply(index: ResidentIndex, delta: Chunk) -> None:
    if len(delta.entries) + len(delta.gone) <= INLINE_ROWS:
        _change(index, delta)
    else:
        await asyncio.to_thread(_change, index, delta)


def _change(index: ResidentIndex, delta: Chunk) -> None:
    index.remove(delta.gone)
    index.put(delta.entries, delta.vectors)
