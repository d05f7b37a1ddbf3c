"""Candidates for a search: the nearest memories of each persistent tier.

The plan follows from how many live rows a scope has, not from the planner's guess: a graph that is filtered after
the walk loses most of a small scope that shares it with others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString

import numpy as np
from psycopg import sql

from configs.settings import RecallSettings
from memory.normalise import content_hash
from memory.ports import Vectors
from memory.records import AgentId, AgentProfile, FactScope, Memory, TenantId, Tier, UserId, namespace_of
from memory.scoring import Candidate
from stores.postgres import agents, queries, rows
from stores.postgres.database import Connection, Database

_SQL = queries.load("recall")
# ``+ 0`` keeps the planner from walking the graph.
_EXACT: LiteralString = "(embedding <=> %(vector)s) + 0"
_GRAPH: LiteralString = "embedding <=> %(vector)s"
_ALWAYS = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose memories a search may see."""

    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId

    @property
    def names(self) -> list[str]:
        return [namespace_of(FactScope.USER, self.user_id), FactScope.AGENT.value]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Half-open range of the time when it happened."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Rows that a scope has, and where."""

    episodes: int
    namespace_ids: list[int]
    placements: list[int]
    facts: int


class RecallStore:
    """Nearest memories from PostgreSQL."""

    def __init__(self, database: Database, settings: RecallSettings) -> None:
        self._database = database
        self._settings = settings

    async def profile(self, tenant_id: TenantId, agent_id: AgentId) -> AgentProfile | None:
        """The agent's settings and revision."""
        async with self._database.transaction(tenant_id) as connection:
            return await agents.profile(connection, tenant_id, agent_id)

    async def candidates(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        model: str,
        tiers: Sequence[Tier],
        limit: int,
        filters: Filters | None = None,
    ) -> list[Candidate]:
        """Up to ``limit`` candidates of each tier, all tiers at once. Raises ``Unavailable``."""
        values = self._values(scope, vector, model, limit, filters or Filters())
        async with self._database.transaction(scope.tenant_id) as connection:
            plan = await _plan(connection, scope)
        searches = {Tier.EPISODIC: self._episodes, Tier.SEMANTIC: self._facts, Tier.PROCEDURAL: self._skills}
        found = await asyncio.gather(*(searches[tier](values, plan, vector) for tier in tiers))
        return [candidate for group in found for candidate in group]

    def _values(self, scope: Scope, vector: Vectors, model: str, limit: int, filters: Filters) -> dict[str, Any]:
        return {
            "tenant_id": scope.tenant_id,
            "agent_id": scope.agent_id,
            "user_id": scope.user_id,
            "names": scope.names,
            "vector": vector,
            "model": model,
            "limit": limit,
            "since": filters.since or _ALWAYS[0],
            "until": filters.until or _ALWAYS[1],
        }

    async def _episodes(self, values: dict[str, Any], plan: _Plan, vector: Vectors) -> list[Candidate]:
        if plan.episodes <= 0:
            return []
        return await self._search("episodes", values, plan.episodes, rows.episode, vector)

    async def _facts(self, values: dict[str, Any], plan: _Plan, vector: Vectors) -> list[Candidate]:
        if not plan.namespace_ids:
            return []
        places = {"namespace_ids": plan.namespace_ids, "placements": plan.placements}
        return await self._search("facts", values | places, plan.facts, rows.fact, vector)

    async def _skills(self, values: dict[str, Any], _: _Plan, vector: Vectors) -> list[Candidate]:
        return await self._search("skills", values, 0, rows.skill, vector)

    async def _search(
        self, name: str, values: dict[str, Any], live: int, build: Callable[[dict[str, Any]], Memory], query: Vectors
    ) -> list[Candidate]:
        exact = live <= self._settings.exact_below
        order = sql.SQL(_EXACT if exact else _GRAPH)
        statement = sql.SQL(_SQL[name]).format(order=order)
        async with self._database.transaction(values["tenant_id"]) as connection:
            if not exact:
                await _walk(connection, self._settings)
            found = await (await connection.execute(statement, values)).fetchall()
        return [_candidate(row, build, query) for row in found]


async def _plan(connection: Connection, scope: Scope) -> _Plan:
    key = {"tenant_id": scope.tenant_id, "agent_id": scope.agent_id, "user_id": scope.user_id, "names": scope.names}
    row = await (await connection.execute(_SQL["scope"], key)).fetchone()
    namespaces = row["namespaces"] if row else []
    return _Plan(
        episodes=row["episodes"] if row else 0,
        namespace_ids=[found[0] for found in namespaces],
        placements=sorted({found[1] for found in namespaces}),
        facts=sum(found[2] for found in namespaces),
    )


async def _walk(connection: Connection, settings: RecallSettings) -> None:
    """Walk the graph on until enough rows pass the filter, for this transaction."""
    wanted = {
        "hnsw.iterative_scan": "strict_order",
        "hnsw.ef_search": str(settings.ef_search),
        "hnsw.max_scan_tuples": str(settings.max_scan_tuples),
    }
    for name, value in wanted.items():
        await connection.execute("SELECT set_config(%s, %s, true)", [name, value])


def _candidate(row: dict[str, Any], build: Callable[[dict[str, Any]], Memory], query: Vectors) -> Candidate:
    vector = np.asarray(row["embedding"].to_numpy() if hasattr(row["embedding"], "to_numpy") else row["embedding"])
    memory = build(row)
    return Candidate(
        memory=memory,
        relevance=max(0.0, float(vector @ query)),
        vector=vector,
        content_hash=row.get("content_hash") or content_hash(memory.content),
    )


def _nearest(found: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The nearest of each tier: facts may come from two searches, and a graph gives an approximate order."""
    ordered = sorted(found, key=lambda candidate: -candidate.relevance)
    seen: Counter[Tier] = Counter()
    kept = []
    for candidate in ordered:
        seen[candidate.memory.tier] += 1
        if seen[candidate.memory.tier] <= limit:
            kept.append(candidate)
    return kept
