"""Skills: procedural memory."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from memory.phrasing import skill_text
from memory.records import AgentId, FactScope, SkillDraft, UserId, namespace_of
from memory.redaction import redact_secrets, redact_value
from serve.dependencies import Agent, AgentScope, Open, OptionalUser, SkillPath
from serve.routes.memories import changed
from serve.schemas import SkillIn, SkillList, SkillOut, SkillOutcomeIn
from serve.services import Services

router = APIRouter(prefix="/v1/agents/{agent_id}/skills", tags=["skills"])
HOT_SKILLS = 100


def _namespace(user_id: str | None) -> str:
    return "agent" if user_id is None else namespace_of(FactScope.USER, UserId(user_id))


def _user(user_id: str | None) -> UserId | None:
    return None if user_id is None else UserId(user_id)


@router.get("")
async def list_skills(agent: Agent, services: Open, user_id: OptionalUser = None) -> SkillList:
    """The agent's skills by proven reliability; with a user, that user's own beside them."""
    if user_id is not None:
        rows = await services.skills.list(agent.tenant_id, agent.agent_id, user_id=UserId(user_id), limit=HOT_SKILLS)
        return SkillList(items=[SkillOut.model_validate(row) for row in rows])
    return SkillList.model_validate_json(await _hot(agent, services))


async def _hot(agent: AgentScope, services: Services) -> bytes:
    """The agent's own skills from the Valkey cache, filled from PostgreSQL on a miss."""
    cached = await services.working.get_skills(agent.tenant_id, agent.agent_id, agent.partition)
    if cached is not None:
        return cached
    revision = await services.agents.revision(agent.tenant_id, agent.agent_id)
    rows = await services.skills.list(agent.tenant_id, agent.agent_id, user_id=None, limit=HOT_SKILLS)
    body = SkillList(items=[SkillOut.model_validate(row) for row in rows]).model_dump_json().encode()
    await services.working.put_skills(agent.tenant_id, agent.agent_id, agent.partition, body, revision=revision)
    return body


@router.put("/{name}")
async def put_skill(name: SkillPath, body: SkillIn, agent: Agent, services: Open) -> SkillOut:
    """Create or replace a skill; its outcome counts stay."""
    trigger = redact_secrets(body.trigger_pattern).text
    vector = (await services.embedder.embed_documents([skill_text(name, trigger)]))[0]
    row, revision = await services.skills.put(
        agent.tenant_id,
        agent.agent_id,
        namespace=_namespace(body.user_id),
        user_id=_user(body.user_id),
        draft=SkillDraft(
            skill_name=name,
            trigger_pattern=trigger,
            policy=redact_value(body.policy),
            tool_sequence=redact_value(body.tool_sequence),
        ),
        vector=vector,
        model=services.embedder.model,
        partition=agent.partition,
    )
    await changed(agent, services, revision)
    return SkillOut.model_validate(row)


@router.get("/{name}")
async def get_skill(name: SkillPath, agent: Agent, services: Open, user_id: OptionalUser = None) -> SkillOut:
    row: dict[str, Any] = await services.skills.get(
        agent.tenant_id, AgentId(agent.agent_id), name, user_id=_user(user_id)
    )
    return SkillOut.model_validate(row)


@router.post("/{name}/outcomes")
async def record_outcome(name: SkillPath, body: SkillOutcomeIn, agent: Agent, services: Open) -> SkillOut:
    """Count a success or a failure, and average its reward, in one atomic statement."""
    row, revision = await services.skills.record_outcome(
        agent.tenant_id,
        agent.agent_id,
        name,
        user_id=_user(body.user_id),
        success=body.outcome == "success",
        reward=body.reward,
        partition=agent.partition,
    )
    await changed(agent, services, revision)
    return SkillOut.model_validate(row)
