"""Over all agents of a tenant, for its administrators."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter

from memory.records import AgentId
from serve.dependencies import Administered, Open
from serve.recall import PERSISTENT, TenantQuestion
from serve.routes.search import hit_out
from serve.schemas import TenantSearchIn, TenantSearchOut

router = APIRouter(prefix="/v1/memories", tags=["tenant"])


@router.post("/search")
async def search(body: TenantSearchIn, tenant_id: Administered, services: Open) -> TenantSearchOut:
    """The best memories of all agents, found through one approximate index and ranked exactly.

    Needs an administrator's key. A search of one agent is exact, and knows its conversations: prefer it.
    """
    hits = await services.recall.search_tenant(
        TenantQuestion(
            tenant_id=tenant_id,
            query=body.query,
            limit=body.top_k,
            now=body.now or datetime.now(UTC),
            agents=[AgentId(agent) for agent in body.agents or ()],
            tiers=frozenset(body.tiers or PERSISTENT),
            since=body.since,
            until=body.until,
            floor=body.similarity_floor,
            weights=None if body.weights is None else body.weights.model_dump(exclude_none=True),
        )
    )
    return TenantSearchOut(hits=[hit_out(hit) for hit in hits])
