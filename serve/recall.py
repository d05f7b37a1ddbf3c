"""Search: the four tiers at once, then one ranking."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter

import numpy as np

from configs.settings import RecallSettings
from memory.fusion import fuse
from memory.normalise import content_hash
from memory.phrasing import episode_text
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
from memory.scoring import Candidate, Hit, ScoringWeights, rank
from serve.access import AccessBuffer
from serve.metrics import Metrics
from stores.models.stemming import EnglishStemmer
from stores.postgres.recall import Filters, RecallStore, Scope
from stores.valkey.keys import SessionKey
from stores.valkey.working import WorkingMemoryStore

PERSISTENT = (Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL)
DEFAULT_IMPORTANCE = 0.5  # of a message that no classifier has seen yet


@dataclass(frozen=True, kw_only=True)
class Question:
    """One search."""

    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId
    partition: Partition
    query: str
    limit: int
    session_id: SessionId | None = None
    tiers: frozenset[Tier] = frozenset(Tier)
    since: datetime | None = None
    until: datetime | None = None
    floor: float | None = None
    weights: Mapping[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    hits: Sequence[Hit]
    revision: int
    working: WorkingMemory
    profile: AgentProfile | None


class Recall:
    """Answers searches of one API replica."""

    def __init__(
        self,
        store: RecallStore,
        working: WorkingMemoryStore,
        embedder: Embedder,
        access: AccessBuffer,
        metrics: Metrics,
        settings: RecallSettings,
    ) -> None:
        self._store = store
        self._working = working
        self._embedder = embedder
        self._access = access
        self._metrics = metrics
        self._settings = settings
        self._stem = EnglishStemmer()

    async def search(self, question: Question) -> Answer:
        """The best memories by the five-factor score. Raises ``Unavailable`` and ``InvalidInput``."""
        started = perf_counter()
        vector = await self._embedder.embed_query(question.query)
        embedded = perf_counter()
        working, stored, profile = await asyncio.gather(
            self._working_memory(question), self._stored(question, vector), self._profile(question)
        )
        messages = [] if Tier.WORKING not in question.tiers else _within(working.messages, question)
        candidates = await self._merge(question, vector, messages, stored)
        fetched = perf_counter()
        hits = self._rank(question, candidates, profile)
        self._access.count(question.tenant_id, (hit.memory for hit in hits))
        self._observe(embed=embedded - started, fetch=fetched - embedded, rank=perf_counter() - fetched)
        return Answer(hits=hits, revision=profile.revision if profile else 0, working=working, profile=profile)

    def _rank(self, question: Question, candidates: Sequence[Candidate], profile: AgentProfile | None) -> list[Hit]:
        weights = ScoringWeights().merged(profile.scoring if profile else {}).merged(question.weights or {})
        floor = self._settings.similarity_floor if question.floor is None else question.floor
        near = [candidate for candidate in candidates if candidate.relevance >= floor]
        fused = fuse(question.query, near, self._stem)
        return rank(fused, weights=weights, now=datetime.now(UTC), floor=0.0, limit=question.limit)

    async def _working_memory(self, question: Question) -> WorkingMemory:
        if question.session_id is None:
            return WorkingMemory()
        key = SessionKey(
            tenant_id=question.tenant_id,
            agent_id=question.agent_id,
            user_id=question.user_id,
            session_id=question.session_id,
            partition=question.partition,
        )
        return await self._working.get(key)

    async def _stored(self, question: Question, vector: Vectors) -> list[Candidate]:
        tiers = [tier for tier in PERSISTENT if tier in question.tiers]
        scope = Scope(tenant_id=question.tenant_id, agent_id=question.agent_id, user_id=question.user_id)
        return await self._store.candidates(
            scope,
            vector,
            model=self._embedder.model,
            tiers=tiers,
            limit=max(self._settings.candidates, question.limit),
            filters=Filters(since=question.since, until=question.until),
        )

    async def _profile(self, question: Question) -> AgentProfile | None:
        return await self._store.profile(question.tenant_id, question.agent_id)

    async def _merge(
        self, question: Question, vector: Vectors, messages: Sequence[WorkingMessage], stored: Sequence[Candidate]
    ) -> list[Candidate]:
        """A message of the session that is stored already is one candidate, of the working tier."""
        by_id = {candidate.memory.id: candidate for candidate in stored}
        vectors = await self._message_vectors([m for m in messages if m.id not in by_id])
        current = {
            message.id: _working_candidate(question, message, by_id.get(message.id), vectors.get(message.id), vector)
            for message in messages
        }
        return [*current.values(), *(c for c in stored if c.memory.id not in current)]

    async def _message_vectors(self, messages: Sequence[WorkingMessage]) -> dict[MemoryId, Vectors]:
        texts = [episode_text(m.content, speaker=m.speaker, occurred_at=m.occurred_at) for m in messages]
        return {m.id: await self._embedder.embed_query(text) for m, text in zip(messages, texts, strict=True)}

    def _observe(self, **stages: float) -> None:
        for stage, seconds in stages.items():
            self._metrics.observe_stage(stage, seconds)


def _within(messages: Sequence[WorkingMessage], question: Question) -> list[WorkingMessage]:
    earliest = question.since or datetime.min.replace(tzinfo=UTC)
    latest = question.until or datetime.max.replace(tzinfo=UTC)
    return [message for message in messages if earliest <= message.occurred_at < latest]


def _working_candidate(
    question: Question, message: WorkingMessage, stored: Candidate | None, own: Vectors | None, query: Vectors
) -> Candidate:
    vector = own if stored is None else stored.vector
    relevance = 0.0 if vector is None else max(0.0, float(np.dot(vector, query)))
    memory = Memory(
        id=message.id,
        tier=Tier.WORKING,
        agent_id=question.agent_id,
        user_id=question.user_id,
        session_id=question.session_id,
        content=message.content,
        event_type=message.event_type,
        speaker=message.speaker,
        outcome=stored.memory.outcome if stored else None,
        importance=stored.memory.importance if stored else DEFAULT_IMPORTANCE,
        access_count=stored.memory.access_count if stored else 0,
        created_at=message.occurred_at,
        recorded_at=stored.memory.recorded_at if stored else message.occurred_at,
        revision=stored.memory.revision if stored else 0,
        details={"role": message.role},
    )
    return Candidate(memory=memory, relevance=relevance, vector=vector, content_hash=content_hash(message.content))
