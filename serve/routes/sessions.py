"""Sessions: working memory."""

from __future__ import annotations

from fastapi import APIRouter, Response

from memory.errors import NotFound
from memory.records import SessionId, UserId, WorkingMemory
from serve.dependencies import Agent, AgentScope, Open, SessionPath, UserQuery, raise_if_error
from serve.routes.memories import status_of
from serve.schemas import Accepted, Deleted, MemoryWrite, ReasoningIn, SessionOut, VariablesIn, WorkingMessageOut
from stores.valkey.keys import SessionKey

router = APIRouter(prefix="/v1/agents/{agent_id}/sessions/{session_id}", tags=["sessions"])


def _key(agent: AgentScope, session_id: str, user_id: str) -> SessionKey:
    return SessionKey(
        tenant_id=agent.tenant_id,
        agent_id=agent.agent_id,
        user_id=UserId(user_id),
        session_id=SessionId(session_id),
        partition=agent.partition,
    )


def _out(working: WorkingMemory) -> SessionOut:
    messages = [WorkingMessageOut.model_validate(message, from_attributes=True) for message in working.messages]
    variables = dict(working.variables)
    return SessionOut(
        messages=messages,
        variables=variables,
        reasoning=working.reasoning,
        spilled=working.spilled,
        summary=working.summary,
    )


@router.get("")
async def get_session(session_id: SessionPath, user_id: UserQuery, agent: Agent, services: Open) -> SessionOut:
    """The session's messages, variables and reasoning state; empty for one that never was or has ended."""
    return _out(await services.working.get(_key(agent, session_id, user_id)))


@router.post("/messages", status_code=202, responses={200: {"model": Accepted}, 201: {"model": Accepted}})
async def append_message(
    session_id: SessionPath, body: MemoryWrite, agent: Agent, services: Open, response: Response
) -> Accepted:
    """Append a message. It is an episode too, so nothing is lost when the session's bounds push it out."""
    named = body.model_copy(update={"session_id": session_id})
    (result,) = await services.acceptance.accept(agent.tenant_id, agent.agent_id, [named], named)
    accepted = raise_if_error(result)
    response.status_code = status_of(accepted)
    return accepted


@router.patch("/variables")
async def set_variables(
    session_id: SessionPath, user_id: UserQuery, body: VariablesIn, agent: Agent, services: Open
) -> SessionOut:
    """Set scratchpad variables; the others stay."""
    key = _key(agent, session_id, user_id)
    await services.working.set_variables(key, body.variables)
    return _out(await services.working.get(key))


@router.delete("/variables/{name}")
async def delete_variable(
    session_id: SessionPath, name: str, user_id: UserQuery, agent: Agent, services: Open
) -> Deleted:
    deleted = await services.working.delete_variables(_key(agent, session_id, user_id), [name])
    if not deleted:
        raise NotFound(f"this session has no variable {name!r}")
    return Deleted(deleted=deleted)


@router.put("/reasoning")
async def replace_reasoning(
    session_id: SessionPath, user_id: UserQuery, body: ReasoningIn, agent: Agent, services: Open
) -> SessionOut:
    """Replace the intermediate reasoning state."""
    key = _key(agent, session_id, user_id)
    await services.working.replace_reasoning(key, body.reasoning)
    return _out(await services.working.get(key))


@router.delete("")
async def end_session(session_id: SessionPath, user_id: UserQuery, agent: Agent, services: Open) -> Deleted:
    """End the session: its working memory goes, its episodes stay."""
    if not await services.working.end(_key(agent, session_id, user_id)):
        raise NotFound(f"no session {session_id!r} of user {user_id!r} is open")
    return Deleted(deleted=1)
