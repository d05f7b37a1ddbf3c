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
    nbytes: int  # of the index, when it was last changed
    world_facts: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, kw_only=True)
class _Load:
    """An index on its way; a small one is waited for."""

    task: asyncio.Task[Resident]
    small: bool


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
        self._nbytes = 0  # of all of them
        self._loads: dict[Scope, _Load] = {}
        self._deltas: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Semaphore(1)  # a large load is CPU-bound, and searches go on beside it

    async def close(self) -> None:
        await end(*(load.task for load in self._loads.values()), *self._deltas)

    async def get(self, scope: Scope) -> Resident | None:
        """The scope's index. A small one is loaded first; for a large one it is ``None`` until it is loaded.

        Raises ``Unavailable``.
        """
        if (resident := self._residents.get(scope)) is not None:
            self._residents.move_to_end(scope)
            self._metrics.resident_hits.inc()
            return resident
        self._metrics.resident_misses.inc()
        if scope not in self._loads:
            size = await self._store.size(scope)
            if size * BYTES_PER_MEMORY > self._settings.resident_bytes:
                return None
            if scope not in self._loads:
                self._start(scope, small=size <= self._settings.load_first_below)
        load = self._loads[scope]
        return await _result(load.task) if load.small else None

    async def catch_up(self, resident: Resident, revision: int) -> None:
        """Bring the index to ``revision`` or later. Raises ``Unavailable``.

        In a task of its own: a client that hangs up must not leave an index that is changed by half.
        """
        task = asyncio.create_task(self._catch_up(resident, revision), name="resident-delta")
        self._deltas.add(task)
        task.add_done_callback(self._deltas.discard)
        await asyncio.shield(task)

    async def _catch_up(self, resident: Resident, revision: int) -> None:
        async with resident.lock:
            if resident.revision >= revision:
                return
            async with self._store.snapshot(resident.scope) as snapshot:
                delta = await snapshot.since(resident.revision)
            try:
                await _apply(resident.index, delta)
            except BaseException:
                self.drop(resident.scope)  # it may be changed by half
                raise
            resident.revision, resident.profile = snapshot.revision, snapshot.profile
        self._metrics.resident_deltas.inc()
        self._weigh(resident)

    def drop(self, scope: Scope) -> None:
        """Forget the index, if there is one."""
        self._take_out(scope)
        if (load := self._loads.get(scope)) is not None:
            load.task.cancel()
        self._report()

    def _start(self, scope: Scope, *, small: bool) -> None:
        loading = self._load(scope) if small else self._load_in_turn(scope)
        task = asyncio.create_task(loading, name=f"resident-load-{scope.agent_id}")
        self._loads[scope] = _Load(task=task, small=small)
        task.add_done_callback(lambda done: self._loaded(scope, done))

    def _loaded(self, scope: Scope, task: asyncio.Task[Resident]) -> None:
        self._loads.pop(scope, None)
        if task.cancelled():
            return
        if (exc := task.exception()) is not None:
            if not isinstance(exc, MnemorayError):
                logger.error("loading the index of agent %r failed", scope.agent_id, exc_info=exc)
            return
        resident = task.result()
        self._residents[scope] = resident
        self._nbytes += resident.nbytes
        self._metrics.resident_loads.inc()
        self._evict()

    async def _load_in_turn(self, scope: Scope) -> Resident:
        async with self._one_at_a_time:
            return await self._load(scope)

    async def _load(self, scope: Scope) -> Resident:
        index = self._empty()
        async with self._store.snapshot(scope) as snapshot:
            async for chunk in snapshot.everything():
                await asyncio.to_thread(index.put, chunk.entries, chunk.vectors)
        return Resident(
            scope=scope,
            index=index,
            revision=snapshot.revision,
            profile=snapshot.profile,
            nbytes=index.nbytes,
        )

    def _weigh(self, resident: Resident) -> None:
        """Count what the index has grown or shrunk by, if it is still here."""
        if self._residents.get(resident.scope) is resident:
            self._nbytes += resident.index.nbytes - resident.nbytes
            resident.nbytes = resident.index.nbytes
            self._evict()

    def _evict(self) -> None:
        while len(self._residents) > 1 and self._nbytes > self._settings.resident_bytes:
            self._take_out(next(iter(self._residents)))
            self._metrics.resident_evictions.inc()
        self._report()

    def _take_out(self, scope: Scope) -> None:
        if (resident := self._residents.pop(scope, None)) is not None:
            self._nbytes -= resident.nbytes

    def _report(self) -> None:
        self._metrics.resident_bytes.set(self._nbytes)
        self._metrics.resident_indexes.set(len(self._residents))


async def _result(load: asyncio.Task[Resident]) -> Resident | None:
    """What the load brings; ``None`` when it was dropped meanwhile. Who stops waiting does not stop it."""
    try:
        return await asyncio.shield(load)
    except asyncio.CancelledError:
        if load.cancelled():
            return None
        raise


async def _apply(index: ResidentIndex, delta: Chunk) -> None:
    if len(delta.entries) + len(delta.gone) <= INLINE_ROWS:
        _change(index, delta)
    else:
        await asyncio.to_thread(_change, index, delta)


def _change(index: ResidentIndex, delta: Chunk) -> None:
    index.remove(delta.gone)
    index.put(delta.entries, delta.vectors)
