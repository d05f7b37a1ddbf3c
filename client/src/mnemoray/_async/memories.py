"""Memories: remember, recall, change, forget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mnemoray._async.verbs import AsyncVerbs
from mnemoray._codec import decode, encode, given, keyed
from mnemoray._request import Request, path
from mnemoray.inputs import Durability, EventType, Fact, NewMemory, Outcome, RetentionTier, Role, Tier, Trust, Wait
from mnemoray.results import (
    Accepted,
    BatchAccepted,
    BatchItem,
    Context,
    Deleted,
    HistoryEvent,
    Memory,
    MemoryPage,
    SearchResult,
)


class AsyncMemories(AsyncVerbs):
    """Memories of any tier."""

    async def add(
        self,
        content: str,
        *,
        agent_id: str,
        user_id: str,
        session_id: str = "default",
        event_type: EventType = "conversation",
        role: Role = "user",
        speaker: str | None = None,
        trust: Trust | None = None,
        outcome: Outcome | None = None,
        importance: float | None = None,
        retention_tier: RetentionTier | None = None,
        occurred_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        facts: Sequence[Fact] = (),
        skill: str | None = None,
        reward: float | None = None,
        idempotency_key: str | None = None,
        wait: Wait = "accepted",
        durability: Durability = "default",
    ) -> Accepted:
        """Remember one interaction; ``NewMemory`` explains the fields.

        Returns once it is durable in the ingest stream, with ``wait="persistent"`` once it is committed.
        """
        memory = NewMemory(
            content=content,
            user_id=user_id,
            session_id=session_id,
            event_type=event_type,
            role=role,
            speaker=speaker,
            trust=trust,
            outcome=outcome,
            importance=importance,
            retention_tier=retention_tier,
            occurred_at=occurred_at,
            metadata=metadata or {},
            infer=infer,
            facts=facts,
            skill=skill,
            reward=reward,
            idempotency_key=idempotency_key,
        )
        body = {**encode(keyed(memory)), "wait": wait, "durability": durability}
        return await self._post(Accepted, path("agents", agent_id, "memories"), body, repeatable=True)

    async def add_batch(
        self,
        memories: Sequence[NewMemory],
        *,
        agent_id: str,
        wait: Wait = "accepted",
        durability: Durability = "default",
    ) -> Sequence[BatchItem]:
        """Remember up to 500 interactions; each is accepted or refused by itself, in order."""
        body = given(items=[keyed(memory) for memory in memories], wait=wait, durability=durability)
        found = await self._post(BatchAccepted, path("agents", agent_id, "memories", "batch"), body, repeatable=True)
        return found.items

    async def search(
        self,
        query: str,
        *,
        agent_id: str,
        user_id: str,
        session_id: str | None = None,
        top_k: int | None = None,
        tiers: Sequence[Tier] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        now: datetime | None = None,
        similarity_floor: float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> SearchResult:
        """The memories that answer a question, best first."""
        body = given(
            query=query,
            user_id=user_id,
            session_id=session_id,
            top_k=top_k,
            tiers=tiers,
            since=since,
            until=until,
            now=now,
            similarity_floor=similarity_floor,
            weights=weights,
        )
        return await self._post(SearchResult, path("agents", agent_id, "memories", "search"), body, repeatable=True)

    async def context(
        self,
        query: str,
        *,
        agent_id: str,
        user_id: str,
        session_id: str | None = None,
        system_prompt: str | None = None,
        window: int | None = None,
        output_reserve: int | None = None,
        ratios: Mapping[Tier, float] | None = None,
        hand_over: bool | None = None,
        top_k: int | None = None,
        tiers: Sequence[Tier] | None = None,
        now: datetime | None = None,
        similarity_floor: float | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> Context:
        """Ready-to-send messages made of what the agent remembers, within a model's window."""
        body = given(
            query=query,
            user_id=user_id,
            session_id=session_id,
            system_prompt=system_prompt,
            window=window,
            output_reserve=output_reserve,
            ratios=ratios,
            hand_over=hand_over,
            top_k=top_k,
            tiers=tiers,
            now=now,
            similarity_floor=similarity_floor,
            weights=weights,
        )
        return await self._post(Context, path("agents", agent_id, "context"), body, repeatable=True)

    async def get(self, memory_id: UUID | str, *, agent_id: str) -> Memory:
        return await self._get(Memory, _memory(agent_id, memory_id))

    async def get_page(
        self,
        *,
        agent_id: str,
        user_id: str | None = None,
        session_id: str | None = None,
        tier: Tier | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> MemoryPage:
        """One page of stored memories, newest first."""
        params = given(
            user_id=user_id, session_id=session_id, tier=tier, since=since, until=until, limit=limit, cursor=cursor
        )
        return await self._get(MemoryPage, path("agents", agent_id, "memories"), params)

    async def get_all(
        self,
        *,
        agent_id: str,
        user_id: str | None = None,
        session_id: str | None = None,
        tier: Tier | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Memory]:
        """All stored memories, newest first, fetched page by page."""
        cursor = None
        while True:
            page = await self.get_page(
                agent_id=agent_id,
                user_id=user_id,
                session_id=session_id,
                tier=tier,
                since=since,
                until=until,
                limit=page_size,
                cursor=cursor,
            )
            for memory in page.items:
                yield memory
            cursor = page.next_cursor
            if cursor is None:
                return

    async def update(
        self,
        memory_id: UUID | str,
        *,
        agent_id: str,
        content: str | None = None,
        importance: float | None = None,
        outcome: Outcome | None = None,
        retention_tier: RetentionTier | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Change what is given; new content is embedded again, and what was derived from the old goes."""
        body = given(
            content=content, importance=importance, outcome=outcome, retention_tier=retention_tier, metadata=metadata
        )
        return await self._patch(Memory, _memory(agent_id, memory_id), body)

    async def delete(self, memory_id: UUID | str, *, agent_id: str) -> Deleted:
        """Forget one memory and what was derived from it alone."""
        return await self._delete(Deleted, _memory(agent_id, memory_id))

    async def delete_all(self, *, agent_id: str, user_id: str) -> Deleted:
        """Forget everything that an agent stored of one user."""
        return await self._delete(Deleted, path("agents", agent_id, "memories"), {"user_id": user_id}, repeatable=True)

    async def history(self, memory_id: UUID | str, *, agent_id: str) -> Sequence[HistoryEvent]:
        """How a memory changed, oldest first."""
        found = await self._transport.send(Request(method="GET", path=_memory(agent_id, memory_id) + "/history"))
        return [decode(HistoryEvent, event) for event in decode(list, found)]


def _memory(agent_id: str, memory_id: UUID | str) -> str:
    return path("agents", agent_id, "memories", memory_id)
