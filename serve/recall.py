"""Search: one ranking over all four tiers.

An agent's user who is resident is answered from memory: one round trip to Valkey (the session and the published
revision), one to PostgreSQL (the winners, and the revision that proves the answer current). One who is not resident yet
is answered from PostgreSQL's nearest candidates, ranked the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.settings import RecallSettings
from memory.dates import named_period
from memory.phrasing import embedded_text
from memory.ports import Embedder, Vectors
from memory.records import (
    AgentId,
    AgentProfile,
    Memory,
    MemoryId,
    Partition,
    SessionId,
    TenantId,
    Tier,
    UserId,
    WorkingMemory,
    WorkingMessage,
)
from memory.scoring import Hit, ScoringWeights
from memory.terms import Analyzer
from serve.access import AccessBuffer
from serve.metrics import Metrics
from serve.resident.cache import Resident, ResidentCache
from serve.resident.index import ResidentIndex
from serve.resident.search import Asked, Query, Winner, read_question, search
from stores.postgres.recall import Candidate, Filters, RecallStore, Scope
from stores.postgres.resident import Hydrated, ResidentStore, Wanted, entry_of
from stores.valkey.keys import SessionKey
from stores.valkey.working import WorkingMemoryStore

PERSISTENT = (Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL)
DEFAULT_IMPORTANCE = 0.5  # of a message that no classifier has seen yet
INLINE_MEMORIES = 2_000  # an index up to this size is searched on the event loop; a thread would cost more
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One search."""

    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId
    partition: Partition
    query: str
    limit: int
    now: datetime  # when the question is asked: recency and "last week" count from here
    session_id: SessionId | None = None
    tiers: frozenset[Tier] = frozenset(Tier)
    since: datetime | None = None
    until: datetime | None = None
    floor: float | None = None
    weights: Mapping[str, float] | None = None

    @property
    def scope(self) -> Scope:
        return Scope(tenant_id=self.tenant_id, agent_id=self.agent_id, user_id=self.user_id)


@dataclass(frozen=True, kw_only=True)
class TenantQuestion:
    """One search over all agents of a tenant."""

    tenant_id: TenantId
    query: str
    limit: int
    now: datetime
    agents: Collection[AgentId] = ()  # only these; empty for all
    tiers: frozenset[Tier] = frozenset(PERSISTENT)
    since: datetime | None = None
    until: datetime | None = None
    floor: float | None = None
    weights: Mapping[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    hits: Sequence[Hit]
    revision: int
    resident: bool  # whether all memories were ranked, or the nearest candidates
    working: WorkingMemory
    profile: AgentProfile | None


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """What a question is, once the names in it are known."""

    question: Question
    asked: Asked
    vector: Vectors
    working: WorkingMemory


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What an index does not hold: messages that are not stored yet, and the world's facts."""

    index: ResidentIndex
    memories: Mapping[MemoryId, Memory]


class Recall:
    """Answers searches of one API replica."""

    def __init__(
        self,
        store: RecallStore,
        resident: ResidentStore,
        residents: ResidentCache,
        working: WorkingMemoryStore,
        embedder: Embedder,
        analyzer: Analyzer,
        access: AccessBuffer,
        metrics: Metrics,
        settings: RecallSettings,
    ) -> None:
        self._store = store
        self._resident = resident
        self.residents = residents
        self._working = working
        self._embedder = embedder
        self._analyzer = analyzer
        self._access = access
        self._metrics = metrics
        self._settings = settings

    async def search(self, question: Question) -> Answer:
        """The best memories by the five-factor score. Raises ``Unavailable`` and ``InvalidInput``."""
        resident = await self.residents.get(question.scope)
        answer = await (self._from_memory(question, resident) if resident else self._from_database(question))
        self._access.count(question.tenant_id, (hit.memory for hit in answer.hits))
        return answer

    async def search_tenant(self, question: TenantQuestion) -> list[Hit]:
        """The best memories of all agents of a tenant: nearest candidates from the graphs, then the exact ranking.

        Raises ``Unavailable`` and ``InvalidInput``.
        """
        asked = read_question(question.query, [], self._analyzer)
        vector = await self._embed(asked.text)
        with self._metrics.stage("fetch"):
            found = await self._store.tenant_candidates(
                question.tenant_id,
                vector,
                model=self._embedder.model,
                tiers=question.tiers,
                limit=max(self._settings.candidates, question.limit),
                filters=Filters(since=question.since, until=question.until),
                agents=question.agents,
            )
        index, memories = self._index_of(found, [], np.zeros((0, self._embedder.dimension)))
        query = Query(
            vector=vector,
            terms=asked.terms,
            speakers=asked.speakers,
            now=question.now,
            weights=ScoringWeights().merged(question.weights or {}),
            limit=question.limit,
            floor=self._settings.similarity_floor if question.floor is None else question.floor,
            tiers=question.tiers,
            period=named_period(question.query, question.now),
        )
        return [_hit(winner, memories[winner.id]) for winner in await self._search([index], query)]

    # ---- resident

    async def _from_memory(self, question: Question, resident: Resident) -> Answer:
        reading, published = await self._read(question, [resident.index])
        if published > resident.revision:
            with self._metrics.stage("delta"):
                await self.residents.catch_up(resident, published)
        ranked, found = await self._ranked(reading, resident)
        if found.revision > resident.revision or found.world_facts != resident.world_facts:
            # Once is enough: what is committed after this is not before the request.
            resident.world_facts = found.world_facts
            with self._metrics.stage("delta"):
                await self.residents.catch_up(resident, found.revision)
            ranked, found = await self._ranked(reading, resident)
        return Answer(
            hits=ranked,
            revision=resident.revision,
            resident=True,
            working=reading.working,
            profile=found.profile,
        )

    async def _ranked(self, reading: _Reading, resident: Resident) -> tuple[list[Hit], Hydrated]:
        """The winners as of the index's revision, and the agent as it is in PostgreSQL."""
        world = await self._world_facts(reading) if resident.world_facts else []
        async with resident.lock:
            beside = await self._beside(reading, world, resident.index)
            parts = [resident.index, *([beside.index] if beside.memories else [])]
            winners = await self._search(parts, self._query(reading, resident.profile))
        with self._metrics.stage("hydrate"):
            stored = [winner for winner in winners if winner.id not in beside.memories]
            found = await self._resident.hydrate(reading.question.scope, [_wanted(winner) for winner in stored])
        if found.profile and resident.profile and found.profile.scoring != resident.profile.scoring:
            resident.profile = found.profile
            return await self._ranked(reading, resident)
        _take_over_accesses(resident, winners, found)
        memories = {**found.memories, **beside.memories}
        return [_hit(winner, memories[winner.id]) for winner in winners if winner.id in memories], found

    async def _world_facts(self, reading: _Reading) -> list[Candidate]:
        if Tier.SEMANTIC not in reading.question.tiers:
            return []
        return await self._candidates(reading, [Tier.SEMANTIC], world=True)

    async def _beside(self, reading: _Reading, world: Sequence[Candidate], index: ResidentIndex) -> _Beside:
        messages = [] if Tier.WORKING not in reading.question.tiers else reading.working.messages
        here = {index.columns.id_of(int(row)) for row in index.columns.rows_of([m.id for m in messages])}
        return await self._aside(reading, world, [message for message in messages if message.id not in here])

    # ---- not resident

    async def _from_database(self, question: Question) -> Answer:
        """The nearest candidates of each tier, ranked as an index of their own."""
        reading, _ = await self._read(question, [])
        with self._metrics.stage("fetch"):
            profile, found = await asyncio.gather(
                self._store.profile(question.tenant_id, question.agent_id),
                self._candidates(reading, [tier for tier in PERSISTENT if tier in question.tiers]),
            )
        stored = {candidate.memory.id for candidate in found}
        messages = [] if Tier.WORKING not in question.tiers else reading.working.messages
        beside = await self._aside(reading, found, [m for m in messages if m.id not in stored])
        winners = await self._search([beside.index], self._query(reading, profile))
        hits = [_hit(winner, beside.memories[winner.id]) for winner in winners]
        return Answer(
            hits=hits,
            revision=profile.revision if profile else 0,
            resident=False,
            working=reading.working,
            profile=profile,
        )

    # ---- both

    async def _read(self, question: Question, parts: Sequence[ResidentIndex]) -> tuple[_Reading, int]:
        """Embed the question, and look up the session and the published revision meanwhile."""
        asked = read_question(question.query, parts, self._analyzer)
        (working, published), vector = await asyncio.gather(self._session(question), self._embed(asked.text))
        return _Reading(question=question, asked=asked, vector=vector, working=working), published

    async def _session(self, question: Question) -> tuple[WorkingMemory, int]:
        with self._metrics.stage("valkey"):
            if question.session_id is None:  # the revision comes with the winners, too
                return WorkingMemory(), 0
            key = SessionKey(
                tenant_id=question.tenant_id,
                agent_id=question.agent_id,
                user_id=question.user_id,
                session_id=question.session_id,
                partition=question.partition,
            )
            return await self._working.get_with_revision(key)

    async def _embed(self, text: str) -> Vectors:
        with self._metrics.stage("embed"):
            return await self._embedder.embed_query(text)

    async def _candidates(self, reading: _Reading, tiers: Sequence[Tier], *, world: bool = False) -> list[Candidate]:
        question = reading.question
        return await self._store.candidates(
            question.scope,
            reading.vector,
            model=self._embedder.model,
            tiers=tiers,
            limit=max(self._settings.candidates, question.limit),
            filters=Filters(since=question.since, until=question.until, world_only=world),
        )

    async def _aside(
        self, reading: _Reading, found: Sequence[Candidate], messages: Sequence[WorkingMessage]
    ) -> _Beside:
        """A small index of what was fetched for this question."""
        waiting = [_message_memory(reading.question, message) for message in messages]
        own = [await self._embedder.embed_query(embedded_text(m.content, speaker=m.speaker)) for m in waiting]
        index, memories = self._index_of(found, waiting, np.array(own).reshape(-1, self._embedder.dimension))
        return _Beside(index=index, memories=memories)

    def _index_of(
        self, found: Sequence[Candidate], waiting: Sequence[Memory], own: NDArray[np.floating[Any]]
    ) -> tuple[ResidentIndex, dict[MemoryId, Memory]]:
        index = ResidentIndex(dimension=self._embedder.dimension, analyzer=self._analyzer)
        entries = [entry_of(c.memory, words=c.content_hash) for c in found] + [entry_of(memory) for memory in waiting]
        index.put(entries, np.concatenate([*(c.vector[None] for c in found), own]).astype(np.float16))
        return index, {memory.id: memory for memory in [*(c.memory for c in found), *waiting]}

    def _query(self, reading: _Reading, profile: AgentProfile | None) -> Query:
        question = reading.question
        weights = ScoringWeights().merged(profile.scoring if profile else {}).merged(question.weights or {})
        return Query(
            vector=reading.vector,
            terms=reading.asked.terms,
            speakers=reading.asked.speakers,
            now=question.now,
            weights=weights,
            limit=question.limit,
            floor=self._settings.similarity_floor if question.floor is None else question.floor,
            tiers=question.tiers,
            since=question.since,
            until=question.until,
            period=named_period(question.query, question.now),
            working=[message.id for message in reading.working.messages],
        )

    async def _search(self, parts: Sequence[ResidentIndex], query: Query) -> list[Winner]:
        started = perf_counter()
        if sum(map(len, parts)) <= INLINE_MEMORIES:
            winners = search(parts, query)
        else:
            winners = await asyncio.to_thread(search, parts, query)
        self._metrics.observe_stage("rank", perf_counter() - started)
        return winners


def _take_over_accesses(resident: Resident, winners: Sequence[Winner], found: Hydrated) -> None:
    """Access counts are no changes of a memory, so no delta brings them; those of other replicas come this way.

    An index that is in use is left alone: the next search will do it.
    """
    if not resident.lock.locked():
        for winner in winners:
            if (memory := found.memories.get(winner.id)) is not None:
                resident.index.count_accesses(winner.row, winner.id, memory.access_count)


def _wanted(winner: Winner) -> Wanted:
    tier = Tier.EPISODIC if winner.tier is Tier.WORKING else winner.tier
    return Wanted(id=winner.id, tier=tier, created_at=_EPOCH + timedelta(microseconds=winner.created_us))


def _hit(winner: Winner, memory: Memory) -> Hit:
    """An episode that the session holds is working memory."""
    return Hit(memory=memory if memory.tier is winner.tier else replace(memory, tier=winner.tier), parts=winner.parts)


def _message_memory(question: Question, message: WorkingMessage) -> Memory:
    """A message that is accepted and not stored yet."""
    return Memory(
        id=message.id,
        tier=Tier.WORKING,
        agent_id=question.agent_id,
        user_id=question.user_id,
        session_id=question.session_id,
        content=message.content,
        event_type=message.event_type,
        speaker=message.speaker,
        importance=DEFAULT_IMPORTANCE,
        created_at=message.occurred_at,
        recorded_at=message.occurred_at,
        revision=0,
        details={"role": message.role},
    )
