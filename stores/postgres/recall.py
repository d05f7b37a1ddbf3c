"""Recall from PostgreSQL: candidates of all persistent tiers for one user of one agent.

A scope that is small is scanned exactly; a large one goes through the HNSW graph, which walks on until it found
enough rows of the scope. ``benchmarks/cold.py`` measures where one becomes better than the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

from configs.settings import RecallSettings
from memory.normalise import content_hash
from memory.ports import Vectors
from memory.records import (
    AgentId,
    AgentProfile,
    EventType,
    FactScope,
    Memory,
    SessionId,
    TenantId,
    Tier,
    UserId,
    namespace_of,
)
from stores.postgres import agents, queries, rows
from stores.postgres.database import Connection, Database

_SQL = queries.load("recall")
MAX_EF_SEARCH = 1_000  # pgvector's limit
ITERATIVE_SCAN = "relaxed_order"  # candidates are sorted again anyway
_OF_TENANT = {Tier.EPISODIC: "tenant_episodes", Tier.SEMANTIC: "tenant_facts", Tier.PROCEDURAL: "tenant_skills"}
SCAN_MEM_MULTIPLIER = 32  # times work_mem, which a walk of the graph may use before it stops


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose memories a search may see: a user's of an agent, with the agent's own and the tenant's world facts."""

    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What narrows a search; ``None`` and an empty collection narrow nothing."""

    since: datetime | None = None  # when it happened, inclusive
    until: datetime | None = None  # exclusive
    session_id: SessionId | None = None  # episodes only: facts and skills have no session
    event_types: Collection[EventType] = ()  # episodes only
    world_only: bool = False  # facts of the tenant's world alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A memory that was found, and what tells it from others."""

    memory: Memory
    relevance: float  # cosine, 0.0 - 1.0
    vector: Vectors  # of shape (dimension,), unit length
    content_hash: str


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One query of a search, and the tier its rows belong to."""

    tier: Tier
    statement: LiteralString
    parameters: dict[str, Any]


class RecallStore:
    """Nearest memories from PostgreSQL, and what a search must know of the agent."""

    def __init__(self, database: Database, settings: RecallSettings) -> None:
        self._database = database
        self._settings = settings

    async def candidates(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        model: str,
        tiers: Collection[Tier],
        limit: int,
        filters: Filters | None = None,
    ) -> list[Candidate]:
        """Up to ``limit`` nearest memories of each tier, nearest first. Raises ``Unavailable``.

        Only vectors of ``model`` are compared. Deleted, expired and superseded memories never appear.
        """
        parameters = _parameters(scope, filters or Filters()) | {"vector": vector, "model": model, "limit": limit}
        async with self._database.pipelined(scope.tenant_id) as connection:
            await connection.execute(_SQL["planner"], self._planner(limit))
            searches = await self._searches(connection, parameters, frozenset(tiers))
            # Queued together: one round trip for all tiers. Faster here than a connection for each.
            cursors = [(s.tier, await _execute(connection, s.statement, s.parameters)) for s in searches]
            found = [(tier, await cursor.fetchall()) for tier, cursor in cursors]
        return _nearest([_candidate(tier, row) for tier, group in found for row in group], limit)

    async def tenant_candidates(
        self,
        tenant_id: TenantId,
        vector: Vectors,
        *,
        model: str,
        tiers: Collection[Tier],
        limit: int,
        filters: Filters,
        agents: Collection[AgentId] = (),
    ) -> list[Candidate]:
        """The same over all agents of a tenant, or over those named: through the graphs, so approximate."""
        parameters = {
            "tenant_id": tenant_id,
            "agents": list(agents) or None,
            "vector": vector,
            "model": model,
            "limit": limit,
            "since": filters.since,
            "until": filters.until,
        }
        async with self._database.pipelined(tenant_id) as connection:
            await connection.execute(_SQL["planner"], self._planner(limit))
            cursors = [
                (tier, await _execute(connection, _SQL[name], parameters))
                for tier, name in _OF_TENANT.items()
                if tier in tiers
            ]
            found = [_candidate(tier, row) for tier, cursor in cursors for row in await cursor.fetchall()]
        return _nearest(found, limit)

    async def recent(self, scope: Scope, session_id: SessionId, *, limit: int = 15) -> list[Memory]:
        """A session's episodes of the last 24 hours, newest first (Key Query 2). Raises ``Unavailable``."""
        parameters = _parameters(scope, Filters(session_id=session_id)) | {"limit": limit}
        async with self._database.pipelined(scope.tenant_id) as connection:
            cursor = await _execute(connection, _SQL["key_query_2_recent_episodes"], parameters)
            return [rows.episode(row) for row in await cursor.fetchall()]

    async def profile(self, tenant_id: TenantId, agent_id: AgentId) -> AgentProfile | None:
        """The agent's settings and revision; ``None`` before its first write. Raises ``Unavailable``."""
        async with self._database.pipelined(tenant_id) as connection:
            return await agents.profile(connection, tenant_id, agent_id)

    async def revision(self, tenant_id: TenantId, agent_id: AgentId) -> int:
        """The agent's newest committed revision; 0 before its first write. Raises ``Unavailable``."""
        profile = await self.profile(tenant_id, agent_id)
        return 0 if profile is None else profile.revision

    def _planner(self, limit: int) -> dict[str, Any]:
        return {
            "iterative_scan": ITERATIVE_SCAN,
            "ef_search": str(min(MAX_EF_SEARCH, max(self._settings.ef_search, limit))),
            "max_scan_tuples": str(self._settings.max_scan_tuples),
            "scan_mem_multiplier": str(SCAN_MEM_MULTIPLIER),
        }

    async def _searches(
        self, connection: Connection, parameters: dict[str, Any], tiers: frozenset[Tier]
    ) -> list[_Search]:
        """Decide each tier's query by how much there is to go through; the counts come in one round trip."""
        bound = self._settings.exact_below
        counted = await _execute(connection, _SQL["count_episodes"], parameters | {"bound": bound})
        readable = await _execute(connection, _SQL["readable_namespaces"], parameters)
        searches = []
        if Tier.EPISODIC in tiers:
            (count,) = await counted.fetchall()
            name = "episodes_exact" if count["episodes"] <= bound else "episodes_ann"
            searches.append(_search(Tier.EPISODIC, name, parameters))
        if Tier.SEMANTIC in tiers:
            searches += _fact_searches(await readable.fetchall(), parameters, bound)
        if Tier.PROCEDURAL in tiers:
            searches.append(_search(Tier.PROCEDURAL, "skills_by_trigger", parameters))
        return searches


async def _execute(connection: Connection, statement: LiteralString, parameters: dict[str, Any]) -> Any:
    """Never prepared: the best plan depends on the scope, and a generic one cannot know it."""
    return await connection.cursor(binary=True).execute(statement, parameters, prepare=False)


def _parameters(scope: Scope, filters: Filters) -> dict[str, Any]:
    return {
        "tenant_id": scope.tenant_id,
        "agent_id": scope.agent_id,
        "user_id": scope.user_id,
        "user_namespace": namespace_of(FactScope.USER, scope.user_id),
        "since": filters.since,
        "until": filters.until,
        "session_id": filters.session_id,
        "world_only": filters.world_only,
        "event_types": [str(event_type) for event_type in filters.event_types] or None,
    }


def _search(tier: Tier, name: str, parameters: dict[str, Any], **extra: object) -> _Search:
    return _Search(tier=tier, statement=_SQL[name], parameters=parameters | extra)


def _fact_searches(namespaces: Sequence[rows.Row], parameters: dict[str, Any], bound: int) -> list[_Search]:
    """The small namespaces in one exact scan, as many as stay within the bound; the rest through the graph."""
    groups: dict[str, list[rows.Row]] = defaultdict(list)
    total = 0
    for namespace in sorted(namespaces, key=lambda row: row["live_count"]):
        total += max(0, namespace["live_count"])
        groups["facts_exact" if total <= bound else "key_query_1_semantic_recall"].append(namespace)
    return [_facts(name, group, parameters) for name, group in groups.items()]


def _facts(name: str, namespaces: Sequence[rows.Row], parameters: dict[str, Any]) -> _Search:
    ids = [row["namespace_id"] for row in namespaces]
    placements = sorted({row["placement"] for row in namespaces})
    return _search(Tier.SEMANTIC, name, parameters, namespaces=ids, placements=placements)


def _candidate(tier: Tier, row: rows.Row) -> Candidate:
    memory = rows.OF_TIER[tier](row)
    return Candidate(
        memory=memory,
        relevance=min(1.0, max(0.0, row["similarity"])),
        vector=row["embedding"].to_numpy(),
        content_hash=row.get("content_hash") or content_hash(memory.content),
    )


def _nearest(found: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The nearest of each tier: facts may come from two searches, and the graph gives an approximate order."""
    tiers: dict[Tier, list[Candidate]] = defaultdict(list)
    for candidate in sorted(found, key=lambda candidate: -candidate.relevance):
        tiers[candidate.memory.tier].append(candidate)
    kept = [candidate for group in tiers.values() for candidate in group[:limit]]
    return sorted(kept, key=lambda candidate: -candidate.relevance)
