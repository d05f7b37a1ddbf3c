"""Memories: remember, read, change, forget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from memory.errors import MnemorayError, NotFound
from memory.phrasing import embedded_text
from memory.records import Memory, MemoryId, SessionId, Tier, UserId, WriteState
from memory.redaction import redact_secrets, redact_value
from serve.dependencies import Agent, AgentScope, MemoryPath, Open, OptionalUser, UserQuery, memory_id, raise_if_error
from serve.problems import of_error
from serve.schemas import (
    Accepted,
    BatchAccepted,
    BatchItem,
    BatchWrite,
    Deleted,
    HistoryEvent,
    Identifier,
    MemoryOut,
    MemoryPage,
    MemoryPatch,
    MemoryWrite,
    Timestamp,
)
from serve.services import Services
from stores.postgres.memories import Deletion, Patch
from stores.postgres.recall import Scope
from stores.valkey.keys import SessionKey

router = APIRouter(prefix="/v1/agents/{agent_id}/memories", tags=["memories"])


def memory_out(memory: Memory) -> MemoryOut:
    return MemoryOut.model_validate(memory, from_attributes=True)


@router.post("", status_code=202, responses={200: {"model": Accepted}, 201: {"model": Accepted}})
async def remember(body: MemoryWrite, agent: Agent, services: Open, response: Response) -> Accepted:
    """Accept one interaction. 202: accepted and durable in the ingest stream; 201: committed; 200: seen before."""
    (result,) = await services.acceptance.accept(agent.tenant_id, agent.agent_id, [body], body)
    accepted = raise_if_error(result)
    response.status_code = status_of(accepted)
    return accepted


def status_of(accepted: Accepted) -> int:
    if accepted.duplicate:
        return 200
    return 201 if accepted.state is WriteState.STORED else 202


@router.post("/batch", status_code=202)
async def remember_batch(body: BatchWrite, agent: Agent, services: Open) -> BatchAccepted:
    """Accept up to 500 interactions; each is accepted or refused by itself, in order."""
    results = await services.acceptance.accept(agent.tenant_id, agent.agent_id, body.items, body)
    return BatchAccepted(items=[_item(result) for result in results])


def _item(result: Accepted | MnemorayError) -> BatchItem:
    if isinstance(result, MnemorayError):
        return BatchItem(problem=of_error(result))
    return BatchItem(accepted=result)


@router.get("")
async def list_memories(
    agent: Agent,
    services: Open,
    user_id: OptionalUser = None,
    session_id: Annotated[Identifier | None, Query()] = None,
    tier: Annotated[Tier | None, Query()] = None,
    since: Annotated[Timestamp | None, Query()] = None,
    until: Annotated[Timestamp | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> MemoryPage:
    """Stored memories, newest first; pass ``next_cursor`` back for the next page."""
    items, next_cursor = await services.memories.list_page(
        agent.tenant_id,
        agent.agent_id,
        tier=tier,
        user_id=None if user_id is None else UserId(user_id),
        session_id=None if session_id is None else SessionId(session_id),
        since=since,
        until=until,
        limit=limit,
        cursor=cursor,
    )
    return MemoryPage(items=[memory_out(item) for item in items], next_cursor=next_cursor)


@router.delete("")
async def delete_all(user_id: UserQuery, agent: Agent, services: Open) -> Deleted:
    """Delete everything that this agent stored of one user, the user's sessions and writes in flight included."""
    user = UserId(user_id)
    await _end_sessions(agent, services, user)
    deletion = await services.memories.delete_user(agent.tenant_id, agent.agent_id, user, partition=agent.partition)
    # Again: a write that was accepted in between has put its message into a session.
    await _end_sessions(agent, services, user)
    services.recall.residents.drop(Scope(tenant_id=agent.tenant_id, agent_id=agent.agent_id, user_id=user))
    await changed(agent, services, deletion.revision)
    return Deleted(deleted=len(deletion.deleted_ids))


async def _end_sessions(agent: AgentScope, services: Services, user: UserId) -> None:
    await services.working.forget_user(
        tenant_id=agent.tenant_id, agent_id=agent.agent_id, user_id=user, partition=agent.partition
    )


@router.get("/{memory_id_}")
async def get_memory(memory_id_: MemoryPath, agent: Agent, services: Open) -> MemoryOut:
    return memory_out(await services.memories.get(agent.tenant_id, agent.agent_id, memory_id(memory_id_)))


@router.patch("/{memory_id_}")
async def update_memory(memory_id_: MemoryPath, body: MemoryPatch, agent: Agent, services: Open) -> MemoryOut:
    """Change a memory. New content is embedded again, and what was derived from the old content goes."""
    target = memory_id(memory_id_)
    current = await services.memories.get(agent.tenant_id, agent.agent_id, target)
    patch = await _patch(body, current, services)
    updated = await services.memories.update(agent.tenant_id, agent.agent_id, target, patch, partition=agent.partition)
    if patch.content is not None and current.tier is Tier.EPISODIC:
        await services.working.replace_message(_session(agent, current), target, patch.content)
    if updated.rederive:
        await services.streams.enqueue_extraction(
            tenant_id=agent.tenant_id, agent_id=agent.agent_id, memory_id=target, partition=agent.partition
        )
    await changed(agent, services, updated.revision)
    return memory_out(updated.memory)


async def _patch(body: MemoryPatch, current: Memory, services: Services) -> Patch:
    content = None if body.content is None else redact_secrets(body.content).text
    vector = None
    if content is not None:
        vector = (await services.embedder.embed_documents([embedded_text(content, speaker=current.speaker)]))[0]
    return Patch(
        content=content,
        importance=body.importance,
        outcome=body.outcome,
        retention_tier=body.retention_tier,
        metadata=None if body.metadata is None else redact_value(body.metadata),
        vector=vector,
        model=services.embedder.model,
    )


@router.delete("/{memory_id_}")
async def delete_memory(memory_id_: MemoryPath, agent: Agent, services: Open) -> Deleted:
    """Forget one memory, what was derived from it alone, and its traces in sessions and queues."""
    target = memory_id(memory_id_)
    # Sessions first: should PostgreSQL fail now, the memory is still an episode, and the request can be repeated.
    await services.working.forget(
        tenant_id=agent.tenant_id, agent_id=agent.agent_id, partition=agent.partition, ids=[target]
    )
    deletion = await _delete(agent, services, target)
    await changed(agent, services, deletion.revision)
    return Deleted(deleted=len(deletion.deleted_ids))


async def _delete(agent: AgentScope, services: Services, target: MemoryId) -> Deletion:
    owner = (agent.tenant_id, agent.agent_id, target)
    try:
        return await services.memories.delete(*owner, partition=agent.partition)
    except NotFound:
        if await services.streams.pending(target, partition=agent.partition) == agent.tenant_id:
            return await services.memories.delete_pending(*owner, partition=agent.partition)
        # It may be gone since a request that failed after its commit: what that one left to do is done here.
        await changed(agent, services, await services.agents.revision(agent.tenant_id, agent.agent_id))
        raise


async def changed(agent: AgentScope, services: Services, revision: int) -> None:
    """Caches of this agent that are older than ``revision`` are stale now."""
    owner = (agent.tenant_id, agent.agent_id, agent.partition)
    await services.working.drop_skills(*owner, revision=revision)
    await services.working.publish_revision(*owner, revision)


def _session(agent: AgentScope, memory: Memory) -> SessionKey:
    return SessionKey(
        tenant_id=agent.tenant_id,
        agent_id=agent.agent_id,
        user_id=memory.user_id or UserId(""),
        session_id=memory.session_id or SessionId(""),
        partition=agent.partition,
    )


@router.get("/{memory_id_}/history")
async def history(memory_id_: MemoryPath, agent: Agent, services: Open) -> list[HistoryEvent]:
    """How a memory changed, oldest first; gone with the memory."""
    events = await services.memories.history(agent.tenant_id, agent.agent_id, memory_id(memory_id_))
    return [HistoryEvent.model_validate(event, from_attributes=True) for event in events]
