"""Quarantine: facts of untrusted channels, which nothing recalls until they are released."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from memory.records import UserId
from serve.dependencies import Agent, MemoryPath, Open, OptionalUser, memory_id
from serve.routes.memories import changed, memory_out
from serve.schemas import MemoryOut, MemoryPage

router = APIRouter(prefix="/v1/agents/{agent_id}/quarantine", tags=["quarantine"])


@router.get("")
async def list_quarantine(
    agent: Agent,
    services: Open,
    user_id: OptionalUser = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> MemoryPage:
    """Facts that wait for a decision, newest first: release them, or DELETE them as any memory."""
    items, next_cursor = await services.quarantine.list_page(
        agent.tenant_id,
        agent.agent_id,
        user_id=None if user_id is None else UserId(user_id),
        limit=limit,
        cursor=cursor,
    )
    return MemoryPage(items=[memory_out(item) for item in items], next_cursor=next_cursor)


@router.post("/{memory_id_}/release")
async def release(memory_id_: MemoryPath, agent: Agent, services: Open) -> MemoryOut:
    """Make it a live fact under the same id. Where a fact of the namespace says the same, that one takes it in and is
    the answer. Its confidence stays within the channel's limit; PATCH the fact to raise it."""
    owner = (agent.tenant_id, agent.agent_id, memory_id(memory_id_))
    held = await services.quarantine.get(*owner)
    (vector,) = await services.embedder.embed_documents([held.content])
    released = await services.quarantine.release(
        *owner, vector=vector, model=services.embedder.model, partition=agent.partition
    )
    await changed(agent, services, released.revision)
    return memory_out(released.memory)
