"""Recall and access statistics: what is found, in which order, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
import pytest_asyncio
from psycopg import sql
from psycopg.types.json import Jsonb

from configs.settings import RecallSettings
from memory.ports import Vectors
from memory.records import AgentId, EventType, MemoryId, SessionId, TenantId, Tier, UserId
from migrations.runner import FixedSettings, migrate
from stores.postgres.access import AccessKey, AccessStore
from stores.postgres.database import Database
from stores.postgres.recall import Candidate, Filters, RecallStore, Scope

DIMENSION = 8
NOW = datetime.now(UTC)
YESTERDAY = NOW - timedelta(days=1)
MODEL = "m1"
ALL = [Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL]
QUERY = np.eye(DIMENSION, dtype=np.float32)[0]


def towards(similarity: float) -> Vectors:
    """A unit vector with this cosine to the query."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[:2] = similarity, (1 - similarity**2) ** 0.5
    return vector


class Rows:
    """Inserts rows of one tenant, with defaults for what a test does not care about."""

    def __init__(self, database: Database, tenant_id: TenantId) -> None:
        self.database = database
        self.tenant_id = tenant_id
        self._number = 0

    async def insert(self, table: str, **values: Any) -> None:
        values = {"tenant_id": self.tenant_id} | values
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join(sql.Placeholder() * len(values)),
        )
        async with self.database.transaction(self.tenant_id) as connection:
            await connection.execute(statement, list(values.values()))

    async def memory(self, table: str, similarity: float, values: dict[str, Any], common: dict[str, Any]) -> UUID:
        self._number += 1
        defaults = {"id": uuid4(), "agent_id": "a", "embedding_model": MODEL, "revision": self._number}
        row = defaults | {"embedding": towards(similarity)} | common | values
        await self.insert(table, **row)
        return UUID(str(row["id"]))

    async def episode(self, similarity: float = 0.9, **values: Any) -> UUID:
        common = {
            "user_id": "u", "session_id": "s", "event_type": "conversation", "content": "x",
            "content_hash": f"{self._number:064d}", "created_at": NOW,
        }  # fmt: skip
        moment = values.get("created_at", NOW)
        async with self.database.connection() as connection:
            await connection.execute("SELECT ensure_episodic_partition(%s)", [moment])
        return await self.memory("episodic_memory", similarity, values, common)

    async def namespace(self, name: str = "user:u", agent_id: str = "a", *, live: int = 1, placement: int = 0) -> int:
        async with self.database.transaction(self.tenant_id) as connection:
            cursor = await connection.execute(
                "INSERT INTO namespaces (tenant_id, agent_id, name, placement, live_count) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (tenant_id, agent_id, name) DO UPDATE SET live_count = EXCLUDED.live_count "
                "RETURNING namespace_id",
                [self.tenant_id, agent_id, name, placement, live],
            )
            return int((await cursor.fetchall())[0]["namespace_id"])

    async def fact(
        self, similarity: float = 0.9, *, name: str = "user:u", owner: str = "a", placement: int = 0, **values: Any
    ) -> UUID:
        common = {
            "namespace": name, "namespace_id": await self.namespace(name, owner, placement=placement),
            "placement": placement, "fact": "x", "content_hash": f"{self._number:064d}",
        }  # fmt: skip
        return await self.memory("semantic_memory", similarity, values, common)

    async def skill(self, similarity: float = 0.9, **values: Any) -> UUID:
        common = {"skill_name": f"skill {self._number}", "trigger_pattern": "when", "policy": Jsonb({})}
        return await self.memory("procedural_memory", similarity, values, common)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def database(postgres_dsn: str) -> AsyncIterator[Database]:
    await migrate(postgres_dsn, FixedSettings(partitions=64, dimension=DIMENSION))
    database = Database(postgres_dsn, pool_size=8)
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def rows(database: Database) -> Rows:
    """A tenant of its own for each test."""
    return Rows(database, TenantId(f"tenant-{uuid4().hex[:8]}"))


@pytest.fixture(params=[10_000, 0], ids=["exact", "graph"])
def store(database: Database, request: pytest.FixtureRequest) -> RecallStore:
    return RecallStore(database, RecallSettings(exact_below=request.param))


async def find(
    store: RecallStore, rows: Rows, *, user: str = "u", agent: str = "a", limit: int = 50, **filters: Any
) -> list[Candidate]:
    scope = Scope(tenant_id=rows.tenant_id, agent_id=AgentId(agent), user_id=UserId(user))
    return await store.candidates(
        scope, QUERY, model=MODEL, tiers=ALL, limit=limit, filters=Filters(**filters) if filters else None
    )


def ids(candidates: list[Candidate]) -> list[UUID]:
    return [candidate.memory.id for candidate in candidates]


async def test_all_tiers_come_nearest_first(store: RecallStore, rows: Rows) -> None:
    expected = [await rows.fact(0.9), await rows.skill(0.7), await rows.episode(0.5)]
    found = await find(store, rows)
    assert ids(found) == expected
    assert [c.memory.tier for c in found] == [Tier.SEMANTIC, Tier.PROCEDURAL, Tier.EPISODIC]
    assert [c.relevance for c in found] == pytest.approx([0.9, 0.7, 0.5], abs=1e-5)


async def test_a_candidate_brings_its_vector_and_hash(store: RecallStore, rows: Rows) -> None:
    await rows.episode(0.6, content_hash="e" * 64)
    (found,) = await find(store, rows)
    assert found.content_hash == "e" * 64
    assert found.vector is not None
    assert found.vector.dtype == np.float32
    assert float(found.vector @ QUERY) == pytest.approx(0.6, abs=1e-5)


async def test_relevance_is_never_negative(store: RecallStore, rows: Rows) -> None:
    await rows.episode(-0.8)
    assert [c.relevance for c in await find(store, rows)] == [0.0]


async def test_only_the_tiers_asked_for(store: RecallStore, rows: Rows) -> None:
    await rows.fact()
    skill = await rows.skill()
    scope = Scope(tenant_id=rows.tenant_id, agent_id=AgentId("a"), user_id=UserId("u"))
    found = await store.candidates(scope, QUERY, model=MODEL, tiers=[Tier.PROCEDURAL], limit=5)
    assert ids(found) == [skill]
    assert await store.candidates(scope, QUERY, model=MODEL, tiers=[], limit=5) == []


async def test_the_limit_is_of_each_tier(store: RecallStore, rows: Rows) -> None:
    best = [await rows.fact(0.9), await rows.fact(0.8, name="agent")]
    await rows.fact(0.7, name="world", owner="")
    episodes = [await rows.episode(0.6), await rows.episode(0.5)]
    await rows.episode(0.4)
    assert ids(await find(store, rows, limit=2)) == best + episodes


async def test_a_small_and_a_large_namespace_are_searched_differently_and_merged(
    database: Database, rows: Rows
) -> None:
    expected = [await rows.fact(0.9, name="world", owner="", placement=1), await rows.fact(0.8)]
    await rows.namespace("world", "", live=1_000, placement=1)
    assert ids(await find(RecallStore(database, RecallSettings(exact_below=10)), rows)) == expected


async def test_nothing_stored_finds_nothing(store: RecallStore, rows: Rows) -> None:
    assert await find(store, rows) == []


@pytest.mark.parametrize("other", ["u2", "U", "u%", "_", "u:u", " u"])
async def test_other_users_never_appear(store: RecallStore, rows: Rows, other: str) -> None:
    mine = {await rows.episode(), await rows.fact(), await rows.skill(namespace="user:u", user_id="u")}
    await rows.episode(user_id=other)
    await rows.fact(name=f"user:{other}")
    await rows.skill(namespace=f"user:{other}", user_id=other)
    assert set(ids(await find(store, rows))) == mine


async def test_a_user_with_wildcards_sees_nobody_else(store: RecallStore, rows: Rows) -> None:
    await rows.episode()
    await rows.fact()
    assert await find(store, rows, user="%") == []


async def test_other_agents_never_appear_but_world_facts_do(store: RecallStore, rows: Rows) -> None:
    await rows.episode(agent_id="b")
    await rows.fact(agent_id="b", owner="b")
    await rows.fact(agent_id="b", owner="b", name="agent")
    await rows.skill(agent_id="b")
    world = await rows.fact(agent_id="b", owner="", name="world")
    assert ids(await find(store, rows)) == [world]


async def test_a_namespace_called_world_of_an_agent_is_not_the_worlds(store: RecallStore, rows: Rows) -> None:
    await rows.fact(name="world", owner="b", agent_id="b")
    assert await find(store, rows) == []


async def test_other_tenants_never_appear(store: RecallStore, rows: Rows, database: Database) -> None:
    other = Rows(database, TenantId(f"{rows.tenant_id}x"))
    await other.episode()
    await other.fact()
    await other.fact(name="world", owner="")
    await other.skill()
    assert await find(store, rows) == []


async def test_deleted_expired_and_superseded_never_appear(store: RecallStore, rows: Rows) -> None:
    alive = {await rows.episode(expires_at=NOW + timedelta(hours=1)), await rows.fact()}
    await rows.episode(is_deleted=True)
    await rows.episode(expires_at=YESTERDAY)
    await rows.fact(is_deleted=True)
    await rows.fact(expires_at=YESTERDAY)
    await rows.fact(valid_until=YESTERDAY)
    assert set(ids(await find(store, rows))) == alive


async def test_vectors_of_other_models_are_never_compared(store: RecallStore, rows: Rows) -> None:
    await rows.episode(embedding_model="m2")
    await rows.fact(embedding_model="m2")
    await rows.skill(embedding_model="m2")
    await rows.episode(embedding=None, embedding_model=None)
    assert await find(store, rows) == []


async def test_a_time_range_includes_its_start_and_not_its_end(store: RecallStore, rows: Rows) -> None:
    moments = [YESTERDAY - timedelta(days=60), YESTERDAY, NOW]
    episodes = [await rows.episode(0.9 - i / 10, created_at=moment) for i, moment in enumerate(moments)]
    facts = [await rows.fact(0.6 - i / 10, valid_from=moment) for i, moment in enumerate(moments)]
    skills = [await rows.skill(0.3 - i / 10, updated_at=moment) for i, moment in enumerate(moments)]
    found = await find(store, rows, since=YESTERDAY, until=NOW)
    assert ids(found) == [episodes[1], facts[1], skills[1]]
    assert ids(await find(store, rows, until=YESTERDAY)) == [episodes[0], facts[0], skills[0]]


async def test_a_session_and_event_types_narrow_the_episodes(store: RecallStore, rows: Rows) -> None:
    wanted = await rows.episode(session_id="s2", event_type="outcome")
    await rows.episode(session_id="s2")
    await rows.episode(event_type="outcome")
    found = await find(store, rows, session_id=SessionId("s2"), event_types=[EventType.OUTCOME, EventType.ACTION])
    assert ids(found) == [wanted]


async def test_counters_that_were_left_behind_do_not_hide_episodes(database: Database, rows: Rows) -> None:
    """The sessions' counters never go down: far above the bound, what is left is counted."""
    episode = await rows.episode()
    await rows.insert("sessions", agent_id="a", user_id="u", session_id="s", episodes=1_000_000)
    assert ids(await find(RecallStore(database, RecallSettings(exact_below=10)), rows)) == [episode]


async def test_many_searches_at_once(store: RecallStore, rows: Rows) -> None:
    expected = [await rows.fact(0.9), await rows.skill(0.7), await rows.episode(0.5)]
    found = await asyncio.gather(*(find(store, rows) for _ in range(40)))
    assert all(ids(candidates) == expected for candidates in found)


async def test_the_profile_and_revision_of_an_agent(store: RecallStore, rows: Rows) -> None:
    assert await store.profile(rows.tenant_id, AgentId("a")) is None
    assert await store.revision(rows.tenant_id, AgentId("a")) == 0
    await rows.insert("agents", agent_id="a", partition=3, team="t", revision=7, scoring=Jsonb({"recency": 0.5}))
    profile = await store.profile(rows.tenant_id, AgentId("a"))
    assert profile is not None
    assert (profile.team, profile.revision, profile.scoring) == ("t", 7, {"recency": 0.5})
    assert await store.revision(rows.tenant_id, AgentId("a")) == 7
    assert await store.revision(TenantId("other"), AgentId("a")) == 0


# Access statistics


def key(rows: Rows, tier: Tier, memory_id: UUID, created_at: datetime = NOW) -> AccessKey:
    return AccessKey(tenant_id=rows.tenant_id, tier=tier, id=MemoryId(memory_id), created_at=created_at)


async def counted(database: Database, rows: Rows) -> dict[UUID, tuple[int, datetime | None]]:
    found = await find(RecallStore(database, RecallSettings()), rows)
    return {c.memory.id: (c.memory.access_count, c.memory.last_accessed_at) for c in found}


async def test_accesses_add_up_and_the_last_one_stays(database: Database, rows: Rows) -> None:
    episode, fact, skill = await rows.episode(), await rows.fact(placement=2), await rows.skill()
    keys = [key(rows, tier, memory) for tier, memory in zip(ALL, (episode, fact, skill), strict=True)]
    store = AccessStore(database)
    await store.record(dict.fromkeys(keys, (2, NOW)))
    await store.record(dict.fromkeys(keys, (3, YESTERDAY)))
    assert await counted(database, rows) == dict.fromkeys((episode, fact, skill), (5, NOW))


async def test_accesses_of_an_old_month_find_it(database: Database, rows: Rows) -> None:
    old = NOW - timedelta(days=200)
    episode, newer = await rows.episode(created_at=old), await rows.episode()
    seen = {key(rows, Tier.EPISODIC, episode, old): (1, NOW), key(rows, Tier.EPISODIC, newer): (4, NOW)}
    await AccessStore(database).record(seen)
    assert await counted(database, rows) == {episode: (1, NOW), newer: (4, NOW)}


async def test_accesses_of_what_is_gone_or_anothers_change_nothing(database: Database, rows: Rows) -> None:
    episode = await rows.episode()
    stranger = Rows(database, TenantId("stranger"))
    seen = {key(rows, Tier.SEMANTIC, uuid4()): (1, NOW), key(stranger, Tier.EPISODIC, episode): (9, NOW)}
    await AccessStore(database).record(seen)
    await AccessStore(database).record({})
    assert await counted(database, rows) == {episode: (0, None)}


async def test_flushes_at_once_lose_nothing_and_never_deadlock(database: Database, rows: Rows) -> None:
    episodes = [await rows.episode() for _ in range(20)]
    store = AccessStore(database)
    orders = [episodes, episodes[::-1], episodes[10:] + episodes[:10]] * 2
    await asyncio.gather(
        *(store.record({key(rows, Tier.EPISODIC, episode): (1, NOW) for episode in order}) for order in orders)
    )
    assert set((await counted(database, rows)).values()) == {(6, NOW)}


async def test_a_flush_waits_for_a_writer_without_holding_anything_it_needs(database: Database, rows: Rows) -> None:
    first, second = sorted([await rows.fact(), await rows.fact()])
    touch = "UPDATE semantic_memory SET confidence = 0.1 WHERE id = %s"
    async with database.transaction(rows.tenant_id) as writer:
        await writer.execute(touch, [second])
        seen = {key(rows, Tier.SEMANTIC, memory): (1, NOW) for memory in (first, second)}
        flush = asyncio.create_task(AccessStore(database).record(seen))
        await asyncio.sleep(0.2)
        assert not flush.done()
        await asyncio.wait_for(writer.execute(touch, [first]), timeout=2)
    await flush
    assert await counted(database, rows) == {first: (1, NOW), second: (1, NOW)}
