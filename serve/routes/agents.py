"""Agents: their own settings."""

from __future__ import annotations

from fastapi import APIRouter

from memory.errors import NotFound
from memory.packing import BudgetRatios
from memory.records import AgentProfile
from memory.scoring import ScoringWeights
from serve.dependencies import Agent, Open
from serve.schemas import AgentIn, AgentOut

router = APIRouter(prefix="/v1/agents/{agent_id}", tags=["agents"])


def _out(profile: AgentProfile) -> AgentOut:
    return AgentOut.model_validate(profile, from_attributes=True)


@router.get("")
async def get_agent(agent: Agent, services: Open) -> AgentOut:
    profile = await services.agents.get(agent.tenant_id, agent.agent_id)
    if profile is None:
        raise NotFound(f"no agent {agent.agent_id!r}; an agent exists once it has stored something")
    return _out(profile)


@router.put("")
async def put_agent(body: AgentIn, agent: Agent, services: Open) -> AgentOut:
    """Replace an agent's scoring weights, budget ratios and retention defaults."""
    scoring = body.scoring.model_dump(exclude_none=True) if body.scoring else {}
    ratios = {tier.value: share for tier, share in (body.budget_ratios or {}).items()}
    ScoringWeights().merged(scoring)
    BudgetRatios().merged(ratios)
    profile = await services.agents.put(
        AgentProfile(
            tenant_id=agent.tenant_id,
            agent_id=agent.agent_id,
            team=body.team,
            scoring=scoring,
            budget_ratios=ratios,
            retention={event.value: tier.value for event, tier in (body.retention or {}).items()},
        ),
        agent.partition,
    )
    return _out(profile)
