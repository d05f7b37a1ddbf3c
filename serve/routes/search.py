"""Search and context."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime

from fastapi import APIRouter

from memory.packing import BudgetRatios, Context
from memory.records import SessionId, Tier, UserId
from memory.scoring import Hit
from serve.context import ContextBuilder, available_tokens, messages_of
from serve.dependencies import Agent, AgentScope, Open
from serve.recall import Answer, Question
from serve.routes.memories import memory_out
from serve.schemas import (
    ContextIn,
    ContextItem,
    ContextOut,
    HitOut,
    ScoreOut,
    SearchIn,
    SearchOut,
    TierUsageOut,
)

router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["recall"])


@router.post("/memories/search")
async def search(body: SearchIn, agent: Agent, services: Open) -> SearchOut:
    """The best memories for a query, each with the five parts of its score."""
    answer = await services.recall.search(replace(_question(body, agent), since=body.since, until=body.until))
    return SearchOut(hits=[hit_out(hit) for hit in answer.hits], revision=answer.revision, resident=answer.resident)


def _question(body: SearchIn | ContextIn, agent: AgentScope) -> Question:
    return Question(
        tenant_id=agent.tenant_id,
        agent_id=agent.agent_id,
        user_id=UserId(body.user_id),
        partition=agent.partition,
        query=body.query,
        limit=body.top_k,
        now=body.now or datetime.now(UTC),
        session_id=None if body.session_id is None else SessionId(body.session_id),
        tiers=frozenset(body.tiers or Tier),
        floor=body.similarity_floor,
        weights=None if body.weights is None else body.weights.model_dump(exclude_none=True),
    )


def hit_out(hit: Hit) -> HitOut:
    return HitOut(memory=memory_out(hit.memory), score=ScoreOut(**asdict(hit.parts)))


@router.post("/context")
async def context(body: ContextIn, agent: Agent, services: Open) -> ContextOut:
    """Memories packed into a model's token budget, as items and as ready-to-send messages."""
    available = available_tokens(
        services.tokens,
        window=body.window or services.settings.recall.context_window,
        system_prompt=body.system_prompt,
        query=body.query,
        output_reserve=body.output_reserve,
    )
    answer = await services.recall.search(_question(body, agent))
    built = await ContextBuilder(services.tokens, services.summarizer).build(
        answer.hits,
        budget=available,
        ratios=_ratios(body, answer),
        hand_over=body.hand_over,
        query=body.query,
        earlier=answer.working.summary,
    )
    return _context_out(built, available, body)


def _ratios(body: ContextIn, answer: Answer) -> BudgetRatios:
    own = answer.profile.budget_ratios if answer.profile else {}
    return BudgetRatios().merged(own).merged({tier.value: share for tier, share in (body.ratios or {}).items()})


def _context_out(built: Context, available: int, body: ContextIn) -> ContextOut:
    items = [
        ContextItem(
            memory=memory_out(item.hit.memory),
            text=item.text,
            tokens=item.tokens,
            summarised=item.summarised,
            score=item.hit.parts.total,
        )
        for item in built.items
    ]
    return ContextOut(
        items=items,
        earlier=built.earlier or None,
        messages=messages_of(built, system_prompt=body.system_prompt, query=body.query),
        tokens_used=built.used,
        tokens_available=available,
        dropped=built.dropped,
        tiers={tier: TierUsageOut(**asdict(usage)) for tier, usage in built.tiers.items()},
    )
