"""The Key Queries of the specification on realistic data: which index serves them, and what the graph finds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import uuid4

import numpy as np
import pytest
import pytest_asyncio
from numpy.random import default_rng
from pgvector import Vector
from psycopg import sql

from configs.settings import RecallSettings
from memory.ports import Vectors
from memory.records import AgentId, SessionId, TenantId, Tier, UserId
from migrations.runner import FixedSettings, migrate
from stores.postgres import queries
from stores.postgres.database import Connection, Database
from stores.postgres.recall import RecallStore, Scope

SQL = {**queries.load("recall"), **queries.load("resident"), **queries.load("beliefs"), **queries.load("quarantine")}
DIMENSION = 64
TENANT, OTHER = TenantId("acme"), TenantId("acme2")
MODEL = "m1"
RNG = default_rng(7)
NOW = datetime.now(UTC)
EPISODES, FACTS, SKILLS, AGENTS = 20_000, 20_000, 2_000, 24
QUARANTINED = 6_000
BIG, MINORITY, SMALL = 9_000, 3_000, 100  # facts of a user: most of the pool, a minority of it, hardly any
GRAPH = RecallSettings(exact_below=0)
EXACT = RecallSettings(exact_below=10**9)
PLANNER = {
    "iterative_scan": "relaxed_order", "ef_search": "200", "max_scan_tuples": "200000", "scan_mem_multiplier": "32",
}  # fmt: skip
CENTRES = RNG.standard_normal((200, DIMENSION))
CENTRES /= np.linalg.norm(CENTRES, axis=1, keepdims=True)


def vectors(count: int) -> Vectors:
    """Unit vectors around topics."""
    found = CENTRES[RNG.integers(0, len(CENTRES), count)] + RNG.standard_normal((count, DIMENSION)) * 0.12
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


@dataclass(frozen=True)
class Namespace:
    id: int
    name: str
    placement: int


@dataclass(frozen=True)
class World:
    database: Database
    namespaces: Mapping[str, Namespace]
    parents: Mapping[str, str]  # index of a partition -> index of its table

    async def plan(self, name: str, parameters: Mapping[str, Any], *, tenant_id: TenantId = TENANT) -> list[Node]:
        """The nodes of the plan that the application role gets."""
        async with self.database.transaction(tenant_id) as connection:
            await connection.execute(SQL["planner"], PLANNER)
            statement: LiteralString = "EXPLAIN (FORMAT JSON) "
            cursor = await connection.execute(statement + SQL[name], parameters, prepare=False)
            ((explained,),) = [tuple(row.values()) for row in await cursor.fetchall()]
        return [Node(self.parents, node) for node in walk(explained[0]["Plan"])]


@dataclass(frozen=True)
class Node:
    parents: Mapping[str, str]
    raw: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.raw["Node Type"])

    @property
    def index(self) -> str | None:
        name = self.raw.get("Index Name")
        return None if name is None else self.parents.get(name, name)


def walk(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from walk(child)


def indexes(nodes: Sequence[Node]) -> set[str]:
    return {node.index for node in nodes if node.index}


def types(nodes: Sequence[Node]) -> set[str]:
    return {node.type for node in nodes}


async def load(connection: Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """COPY into a table without row-level security, then insert: COPY does not go through policies."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    target = sql.Identifier(table)
    await connection.execute(
        sql.SQL("CREATE TEMP TABLE loading ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(names, target)
    )
    async with connection.cursor() as cursor, cursor.copy("COPY loading FROM STDIN") as copy:
        for row in rows:
            await copy.write_row([Vector(v).to_text() if isinstance(v, np.ndarray) else v for v in row])
    await connection.execute(sql.SQL("INSERT INTO {} ({}) SELECT * FROM loading").format(target, names))
    await connection.execute("DROP TABLE loading")


async def load_episodes(connection: Connection, tenant_id: TenantId, count: int) -> None:
    columns = (
        "id", "tenant_id", "agent_id", "user_id", "session_id", "event_type", "content", "content_hash", "embedding",
        "embedding_model", "revision", "created_at",
    )  # fmt: skip
    # Few agents have most of the episodes, and they are used more every day; a session is one user's.
    owners = (AGENTS * RNG.random(count) ** 3).astype(int)
    rows = [
        (
            uuid4(), tenant_id, f"agent-{owners[i]}", f"user-{i % 5}", f"session-{i % 5}-{i % 2}", "conversation",
            f"episode {i}", f"{i:064d}", vector, MODEL, i, NOW - timedelta(days=90 * (i / count) ** 3),
        )
        for i, vector in enumerate(vectors(count))
    ]  # fmt: skip
    await load(connection, "episodic_memory", columns, rows)


async def add_namespace(connection: Connection, tenant_id: TenantId, agent_id: str, name: str, size: int) -> Namespace:
    cursor = await connection.execute(
        "INSERT INTO namespaces (tenant_id, agent_id, name, placement, live_count) VALUES (%s, %s, %s, 0, %s) "
        "RETURNING namespace_id",
        [tenant_id, agent_id, name, size],
    )
    (row,) = await cursor.fetchall()
    return Namespace(id=row["namespace_id"], name=name, placement=0)


async def load_facts(connection: Connection, tenant_id: TenantId, agent_id: str, name: str, size: int) -> Namespace:
    namespace = await add_namespace(connection, tenant_id, agent_id, name, size)
    columns = (
        "id", "tenant_id", "agent_id", "namespace", "namespace_id", "placement", "fact", "subject", "predicate",
        "embedding", "embedding_model", "content_hash", "revision",
    )  # fmt: skip
    rows = [
        (
            uuid4(), tenant_id, agent_id, name, namespace.id, 0, f"fact {i}", f"subject {i % 50}",
            f"predicate {i // 50}", vector, MODEL, f"{i:064d}", i,
        )
        for i, vector in enumerate(vectors(size))
    ]  # fmt: skip
    await load(connection, "semantic_memory", columns, rows)
    return namespace


async def load_skills(connection: Connection, tenant_id: TenantId, count: int) -> None:
    columns = (
        "id", "tenant_id", "agent_id", "skill_name", "trigger_pattern", "policy", "success_count", "failure_count",
        "avg_reward", "embedding", "embedding_model", "revision",
    )  # fmt: skip
    rows = [
        (
            uuid4(), tenant_id, f"agent-{i % AGENTS}", f"skill {i}", f"trigger {i}", json.dumps({"steps": [i]}),
            i % 17, i % 5, (i % 10) / 10, vector, MODEL, i,
        )
        for i, vector in enumerate(vectors(count))
    ]  # fmt: skip
    await load(connection, "procedural_memory", columns, rows)


async def load_quarantine(connection: Connection, tenant_id: TenantId, namespace: Namespace, count: int) -> None:
    columns = (
        "id", "tenant_id", "agent_id", "user_id", "namespace", "namespace_id", "placement", "fact", "confidence",
        "content_hash", "valid_from", "revision", "created_at",
    )  # fmt: skip
    rows = [
        (
            uuid4(), tenant_id, f"agent-{i % AGENTS}", f"user-{i % 5}", namespace.name, namespace.id, 0, f"claim {i}",
            0.3, f"{i:064d}", NOW, i, NOW - timedelta(minutes=i),
        )
        for i in range(count)
    ]  # fmt: skip
    await load(connection, "quarantined_facts", columns, rows)


GRAPHS = ("episodic", "semantic", "procedural")


async def fill(database: Database) -> dict[str, Namespace]:
    async with database.connection() as connection:
        for days in (0, 30, 60, 90, 92):
            await connection.execute("SELECT ensure_episodic_partition(%s)", [NOW - timedelta(days=days)])
        for tier in GRAPHS:
            await connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(f"idx_{tier}_embedding")))
    namespaces = {}
    async with database.transaction(TENANT) as connection:
        await load_episodes(connection, TENANT, EPISODES)
        sizes = {"user:big": BIG, "user:minority": MINORITY, "user:small": SMALL}
        sizes |= {f"user:{i}": 395 for i in range((FACTS - sum(sizes.values())) // 395)}
        for name, size in sizes.items():
            namespaces[name] = await load_facts(connection, TENANT, "agent-0", name, size)
        await load_skills(connection, TENANT, SKILLS)
        await load_quarantine(connection, TENANT, namespaces["user:small"], QUARANTINED)
    async with database.transaction(OTHER) as connection:
        await load_episodes(connection, OTHER, 500)
        namespaces["other"] = await load_facts(connection, OTHER, "agent-0", "user:big", 500)
    await index(database)
    return namespaces


async def index(database: Database) -> None:
    """Build the graphs after the rows: the same graphs in a fraction of the time."""
    async with database.connection() as connection:
        for tier in GRAPHS:
            await connection.execute(
                sql.SQL(
                    "CREATE INDEX {} ON {} USING hnsw (embedding vector_cosine_ops) "
                    "WITH (m = 16, ef_construction = 200)"
                ).format(sql.Identifier(f"idx_{tier}_embedding"), sql.Identifier(f"{tier}_memory"))
            )
            await connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(f"{tier}_memory")))
        await connection.execute("ANALYZE namespaces, quarantined_facts")


async def parents(database: Database) -> dict[str, str]:
    async with database.connection() as connection:
        cursor = await connection.execute(
            "SELECT child.relname AS child, parent.relname AS parent FROM pg_inherits "
            "JOIN pg_class AS child ON child.oid = inhrelid JOIN pg_class AS parent ON parent.oid = inhparent "
            "WHERE child.relkind = 'i'"
        )
        return {row["child"]: row["parent"] for row in await cursor.fetchall()}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(postgres_dsn: str) -> AsyncIterator[World]:
    await migrate(postgres_dsn, FixedSettings(partitions=64, dimension=DIMENSION))
    database = Database(postgres_dsn, pool_size=4)
    await database.open()
    namespaces = await fill(database)
    yield World(database, namespaces, await parents(database))
    await database.close()


def facts_of(*namespaces: Namespace, tenant_id: TenantId = TENANT, limit: int = 20) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "namespaces": [namespace.id for namespace in namespaces],
        "placements": sorted({namespace.placement for namespace in namespaces}),
        "vector": vectors(1)[0],
        "model": MODEL,
        "since": None,
        "until": None,
        "limit": limit,
    }


def episodes_of(agent_id: str, user_id: str, **extra: object) -> dict[str, Any]:
    return {
        "tenant_id": TENANT,
        "agent_id": agent_id,
        "user_id": user_id,
        "user_namespace": f"user:{user_id}",
        "vector": vectors(1)[0],
        "model": MODEL,
        "since": None,
        "until": None,
        "session_id": None,
        "event_types": None,
        "world_only": False,
        "limit": 20,
    } | extra


def recent_of(agent_id: str, user_id: str, session_id: str) -> dict[str, Any]:
    return episodes_of(agent_id, user_id, session_id=session_id, limit=15)


async def test_semantic_recall_of_a_large_namespace_walks_the_graph(world: World) -> None:
    plan = await world.plan("key_query_1_semantic_recall", facts_of(world.namespaces["user:big"]))
    assert indexes(plan) == {"idx_semantic_embedding"}
    assert "Sort" not in types(plan)


async def test_semantic_recall_touches_the_placement_only(world: World) -> None:
    plan = await world.plan("key_query_1_semantic_recall", facts_of(world.namespaces["user:big"]))
    assert {node.raw["Relation Name"] for node in plan if "Relation Name" in node.raw} == {"semantic_memory_pool_0"}


async def test_exact_recall_of_a_small_namespace_scans_the_namespace(world: World) -> None:
    plan = await world.plan("facts_exact", facts_of(world.namespaces["user:small"]))
    assert indexes(plan) == {"idx_semantic_namespace"}


async def test_exact_recall_never_walks_the_graph(world: World) -> None:
    facts = await world.plan("facts_exact", facts_of(world.namespaces["user:big"]))
    episodes = await world.plan("episodes_exact", episodes_of("agent-0", "user-0"))
    skills = await world.plan("skills_by_trigger", episodes_of("agent-0", "user-0"))
    graphs = {f"idx_{tier}_embedding" for tier in GRAPHS}
    assert not graphs & (indexes(facts) | indexes(episodes) | indexes(skills))


async def test_exact_episode_recall_scans_the_users_episodes(world: World) -> None:
    plan = await world.plan("episodes_exact", episodes_of("agent-3", "user-3"))
    assert indexes(plan) == {"idx_episodic_scope"}


async def test_recent_episodes_are_read_in_index_order(world: World) -> None:
    plan = await world.plan("key_query_2_recent_episodes", recent_of("agent-0", "user-1", "session-1-1"))
    assert indexes(plan) == {"idx_episodic_agent_recent"}
    assert not {"Sort", "Incremental Sort"} & types(plan)


async def test_recent_episodes_prune_the_older_months(world: World) -> None:
    plan = await world.plan("key_query_2_recent_episodes", recent_of("agent-0", "user-1", "session-1-1"))
    read = {node.raw["Relation Name"] for node in plan if "Relation Name" in node.raw}
    months = {f"episodic_memory_{moment:%Y_%m}" for moment in (NOW - timedelta(days=1), NOW)}
    assert read <= months
    assert sum(node.raw.get("Subplans Removed", 0) for node in plan) >= 2 or len(read) <= len(months)


async def test_a_time_range_prunes_the_months_outside(world: World) -> None:
    since = NOW - timedelta(days=62)
    plan = await world.plan("episodes_exact", episodes_of("agent-3", "user-3", since=since, until=since))
    read = {node.raw["Relation Name"] for node in plan if "Relation Name" in node.raw}
    assert read <= {f"episodic_memory_{since:%Y_%m}"}


async def test_supersede_finds_the_subject_and_predicate(world: World) -> None:
    namespace = world.namespaces["user:big"]
    parameters = {
        "tenant_id": TENANT, "namespace_id": namespace.id, "placement": 0, "subject": "subject 3",
        "predicate": "predicate 3", "confidence": 0.9, "revision": 1,
    }  # fmt: skip
    assert indexes(await world.plan("key_query_3_supersede", parameters)) == {"idx_semantic_subject_pred"}


async def test_what_is_current_about_a_subject_is_looked_up(world: World) -> None:
    parameters = {
        "tenant_id": TENANT, "namespace_id": world.namespaces["user:big"].id, "placement": 0, "subject": "subject 3",
        "content_hash": "0" * 64,
    }  # fmt: skip
    assert indexes(await world.plan("facts_about", parameters)) == {"idx_semantic_subject_pred"}


async def test_supersede_retires_what_is_not_more_confident_once(world: World) -> None:
    parameters = {
        "tenant_id": TENANT, "namespace_id": world.namespaces["user:small"].id, "placement": 0,
        "subject": "subject 4", "predicate": "predicate 0", "confidence": 0.6, "revision": 7,
    }  # fmt: skip
    async with world.database.transaction(TENANT) as connection:
        counts = []
        for confidence in (0.6, 0.7, 0.9):  # the stored fact has 0.7
            cursor = await connection.execute(SQL["key_query_3_supersede"], parameters | {"confidence": confidence})
            counts.append(len(await cursor.fetchall()))
    assert counts == [0, 1, 0]


async def test_the_ranking_of_an_agents_skills_is_read_in_index_order(world: World) -> None:
    statement = (
        "EXPLAIN (FORMAT JSON) SELECT id FROM procedural_memory WHERE tenant_id = %s AND agent_id = %s "
        "ORDER BY success_rate DESC, avg_reward DESC LIMIT 10"
    )
    async with world.database.transaction(TENANT) as connection:
        cursor = await connection.execute(statement, [TENANT, "agent-1"])
        ((explained,),) = [tuple(row.values()) for row in await cursor.fetchall()]
    plan = [Node(world.parents, node) for node in walk(explained[0]["Plan"])]
    assert indexes(plan) == {"idx_procedural_agent_rank"}
    assert "Sort" not in types(plan)


async def test_the_namespaces_of_a_scope_are_looked_up(world: World) -> None:
    plan = await world.plan("readable_namespaces", episodes_of("agent-0", "small"))
    assert indexes(plan) <= {"namespaces_tenant_id_agent_id_name_key"}


@pytest.mark.parametrize("user_id", ["big", "minority", "small"])
async def test_the_graph_finds_what_the_scan_finds(world: World, user_id: str) -> None:
    scope = Scope(tenant_id=TENANT, agent_id=AgentId("agent-0"), user_id=UserId(user_id))
    hits = total = 0
    for query in vectors(25):
        right = await nearest(world, EXACT, scope, query, Tier.SEMANTIC)
        hits += len(right & await nearest(world, GRAPH, scope, query, Tier.SEMANTIC))
        total += len(right)
    assert hits / total >= 0.95


async def test_a_graph_shared_with_larger_namespaces_still_finds_a_minority(world: World) -> None:
    """Without the planner's way out: every plan but the graph is forbidden."""
    hits = 0
    for _ in range(25):
        parameters = facts_of(world.namespaces["user:minority"])
        async with world.database.transaction(TENANT) as connection:
            await connection.execute(SQL["planner"], PLANNER)
            exact = await connection.execute(SQL["facts_exact"], parameters, prepare=False)
            right = {row["id"] for row in await exact.fetchall()}
            await connection.execute("SELECT set_config('enable_sort', 'off', true)")
            graph = await connection.execute(SQL["key_query_1_semantic_recall"], parameters, prepare=False)
            hits += len(right & {row["id"] for row in await graph.fetchall()})
    assert hits / (25 * 20) >= 0.95


async def test_the_graph_of_months_finds_a_users_episodes(world: World) -> None:
    scope = Scope(tenant_id=TENANT, agent_id=AgentId("agent-2"), user_id=UserId("user-2"))
    hits = total = 0
    for query in vectors(15):
        right = await nearest(world, EXACT, scope, query, Tier.EPISODIC)
        hits += len(right & await nearest(world, GRAPH, scope, query, Tier.EPISODIC))
        total += len(right)
    assert total == 15 * 20
    assert hits / total >= 0.95


async def nearest(world: World, settings: RecallSettings, scope: Scope, query: Vectors, tier: Tier) -> set[object]:
    store = RecallStore(world.database, settings)
    found = await store.candidates(scope, query, model=MODEL, tiers=[tier], limit=20)
    return {candidate.memory.id for candidate in found}


@pytest.mark.parametrize("settings", [EXACT, GRAPH], ids=["exact", "graph"])
async def test_another_tenant_with_the_same_names_sees_its_own(world: World, settings: RecallSettings) -> None:
    store = RecallStore(world.database, settings)
    tiers = [Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL]
    scopes = [Scope(tenant_id=t, agent_id=AgentId("agent-0"), user_id=UserId("big")) for t in (TENANT, OTHER)]
    mine, theirs = [
        await store.candidates(scope, vectors(1)[0], model=MODEL, tiers=tiers, limit=1000) for scope in scopes
    ]
    assert len([c for c in theirs if c.memory.tier is Tier.SEMANTIC]) == 500
    assert not {c.memory.id for c in mine} & {c.memory.id for c in theirs}


@pytest.mark.parametrize("table", ["episodic_memory", "semantic_memory", "procedural_memory", "namespaces"])
async def test_without_a_tenant_nothing_is_visible(world: World, table: str) -> None:
    async with world.database.connection() as connection:
        cursor = await connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table)))
        assert await cursor.fetchall() == []


@pytest.mark.parametrize("table", ["episodic_memory", "semantic_memory", "namespaces"])
async def test_sql_that_forgets_the_tenant_sees_one_tenant(world: World, table: str) -> None:
    async with world.database.transaction(OTHER) as connection:
        cursor = await connection.execute(sql.SQL("SELECT DISTINCT tenant_id FROM {}").format(sql.Identifier(table)))
        assert [row["tenant_id"] for row in await cursor.fetchall()] == [OTHER]


@pytest.mark.parametrize("partition", [f"episodic_memory_{NOW:%Y_%m}", "semantic_memory_pool_0"])
async def test_around_the_parent_a_partition_shows_nothing(world: World, partition: str) -> None:
    async with world.database.transaction(TENANT) as connection:
        cursor = await connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(partition)))
        assert await cursor.fetchall() == []


async def test_recent_returns_a_sessions_last_day(world: World) -> None:
    store = RecallStore(world.database, EXACT)
    scope = Scope(tenant_id=TENANT, agent_id=AgentId("agent-0"), user_id=UserId("user-0"))
    recent = await store.recent(scope, SessionId("session-0-0"))
    assert recent
    assert {(m.agent_id, m.user_id, m.session_id) for m in recent} == {("agent-0", "user-0", "session-0-0")}
    assert [m.created_at for m in recent] == sorted((m.created_at for m in recent), reverse=True)
    assert min(m.created_at for m in recent) >= NOW - timedelta(hours=24)


# ---- resident indexes and searches over all agents


def resident_of(agent_id: str, user_id: str, **extra: object) -> dict[str, Any]:
    return episodes_of(agent_id, user_id, revision=-1, ids=[uuid4()], moments=[datetime.now(UTC)], agents=None) | extra


async def test_a_load_reads_the_users_episodes_and_nothing_else(world: World) -> None:
    plan = await world.plan("changed_episodes", resident_of("agent-3", "user-3"))
    assert indexes(plan) <= {"idx_episodic_scope", "idx_episodic_revision"}


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("changed_episodes", "idx_episodic_revision"),
        ("changed_facts", "idx_semantic_revision"),
        ("gone", "idx_tombstones_revision"),
    ],
)
async def test_a_delta_reads_what_changed(world: World, name: str, index: str) -> None:
    plan = await world.plan(name, resident_of("agent-0", "user-0", revision=10**9))
    assert indexes(plan) == {index}


@pytest.mark.parametrize(
    ("name", "index"),
    [("hydrate_episodes", "episodic_memory_pkey"), ("hydrate_facts", "semantic_memory_pkey")],
)
async def test_winners_are_hydrated_by_primary_key(world: World, name: str, index: str) -> None:
    plan = await world.plan(name, resident_of("agent-0", "user-0"))
    assert indexes(plan) == {index}


@pytest.mark.parametrize("tier", ["episodic", "semantic"])
async def test_a_search_over_all_agents_walks_the_graphs(world: World, tier: str) -> None:
    name = {"episodic": "tenant_episodes", "semantic": "tenant_facts"}[tier]
    plan = await world.plan(name, resident_of("agent-0", "user-0"))
    assert indexes(plan) == {f"idx_{tier}_embedding"}


# ---- quarantine


@pytest.mark.parametrize("user_id", [None, "user-3"])
async def test_a_page_of_the_quarantine_is_read_in_its_order(world: World, user_id: str | None) -> None:
    place = {"before": NOW - timedelta(days=1), "before_id": uuid4(), "limit": 100}
    key = {"tenant_id": TENANT, "agent_id": "agent-3", "user_id": user_id}
    plan = await world.plan("list_quarantined", place | key)
    assert "idx_quarantined_listed" in indexes(plan)
    assert indexes(plan) <= {"idx_quarantined_listed", "memory_sources_pkey"}
    # What is sorted are the sources of one fact, if any.
    assert not any("created_at" in str(node.raw.get("Sort Key")) for node in plan)


async def test_a_quarantined_fact_is_found_by_primary_key(world: World) -> None:
    plan = await world.plan("get_quarantined", {"tenant_id": TENANT, "agent_id": "agent-3", "id": uuid4()})
    assert indexes(plan) == {"quarantined_facts_pkey"}
