"""Memories, skills, ledger and shards against a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from memory.errors import Conflict, Fenced, InvalidInput, NotFound
from memory.ports import Vectors
from memory.records import (
    AgentId,
    Classification,
    FactDraft,
    Interaction,
    MemoryId,
    Outcome,
    Partition,
    SkillDraft,
    TenantId,
    Tier,
    UserId,
    WriteState,
)
from memory.routing import assignments
from stores.postgres.agents import AgentStore, lock_agent
from stores.postgres.database import Database
from stores.postgres.ledger import LedgerStore
from stores.postgres.memories import MemoryStore, Patch
from stores.postgres.shards import ShardStore, fence
from stores.postgres.skills import SkillStore
from stores.postgres.writes import Ownership, Prepared, WriteStore, Written
from tests.builders import interaction, new_id

PARTITION = Partition(3)
TENANT, AGENT, ANN = TenantId("tenant-a"), AgentId("agent"), UserId("ann")
MODEL = "m"


def vector(seed: int = 0) -> Vectors:
    found = np.random.default_rng(seed).normal(size=384).astype(np.float32)
    return np.asarray(found / np.linalg.norm(found), dtype=np.float32)


def prepared(of: Interaction, *facts: FactDraft) -> Prepared:
    rows = np.stack([vector(n) for n in range(len(facts))]) if facts else np.empty((0, 384), np.float32)
    found = Classification(importance=0.5, facts=facts)
    return Prepared(
        interaction=of,
        classification=found,
        vector=vector(),
        fact_vectors=rows,
        skill_vectors=np.empty((0, 384), np.float32),
    )


async def store(database: Database, items: Sequence[Prepared]) -> Written:
    await ShardStore(database).assign({PARTITION: "shard"})
    epoch = (await ShardStore(database).owned("shard"))[PARTITION]
    owner = Ownership(partition=PARTITION, shard="shard", epoch=epoch)
    return await WriteStore(database, embedding_model=MODEL).persist(owner, items)


def agent(name: str) -> AgentId:
    """An agent of the test's own: the module shares a database."""
    return AgentId(name)


async def test_a_batch_that_is_delivered_again_changes_nothing(database: Database) -> None:
    mine = agent("redelivered")
    items = [prepared(interaction(f"note {n}", agent_id=mine), FactDraft(fact=f"fact {n}")) for n in range(3)]
    first = await store(database, items)
    again = await store(database, items)
    assert {each.state for each in first.settlements.values()} == {WriteState.STORED}
    assert {each.state for each in again.settlements.values()} == {WriteState.STORED}
    page, _ = await MemoryStore(database).list_page(TENANT, mine, limit=100)
    assert sorted(memory.content for memory in page) == sorted(
        [f"note {n}" for n in range(3)] + [f"fact {n}" for n in range(3)]
    )


async def test_a_shard_without_the_partition_writes_nothing(database: Database) -> None:
    await ShardStore(database).assign({PARTITION: "shard"})
    stale = Ownership(partition=PARTITION, shard="shard", epoch=0)
    sent = interaction(agent_id=agent("fenced"))
    with pytest.raises(Fenced):
        await WriteStore(database, embedding_model=MODEL).persist(stale, [prepared(sent)])
    assert await LedgerStore(database).find(TENANT, sent.id) is None
    with pytest.raises(NotFound):
        await MemoryStore(database).get(TENANT, sent.agent_id, sent.id)


async def test_assignments_move_only_what_they_must(database: Database) -> None:
    shards = ShardStore(database)
    await shards.assign(assignments(["a", "b"]))
    before = await shards.owned("a") | await shards.owned("b")
    assert await shards.assign(assignments(["a", "b"])) == 0
    moved = await shards.assign(assignments(["a", "b", "c"]))
    taken = await shards.owned("c")
    assert moved == len(taken) > 0
    assert all(epoch == before[partition] + 1 for partition, epoch in taken.items())
    partition = next(iter(taken))
    async with database.connection() as connection, connection.transaction():
        await fence(connection, partition, "c", taken[partition])
        with pytest.raises(Fenced):
            await fence(connection, partition, "a", before[partition])


async def test_revisions_of_concurrent_changes_have_no_gaps(database: Database) -> None:
    mine = agent("revised")

    async def change() -> int:
        async with database.transaction(TENANT) as connection:
            return await lock_agent(connection, TENANT, mine, PARTITION)

    found = await asyncio.gather(*(change() for _ in range(40)))
    assert sorted(found) == list(range(1, 41))
    assert await AgentStore(database).revision(TENANT, mine) == 40
    assert await AgentStore(database).revision(TenantId("tenant-b"), mine) == 0


async def test_a_deletion_leaves_no_content_behind(database: Database) -> None:
    mine, memories = agent("deleted"), MemoryStore(database)
    one, two = (interaction("the heron note", agent_id=mine), interaction("another heron note", agent_id=mine))
    shared, own = FactDraft(fact="said twice"), FactDraft(fact="said once")
    written = await store(database, [prepared(one, shared, own), prepared(two, shared)])
    _, kept, gone = written.settlements[one.id].memory_ids
    await memories.update(TENANT, mine, one.id, Patch(importance=0.9), partition=PARTITION)
    deletion = await memories.delete(TENANT, mine, one.id, partition=PARTITION)
    assert set(deletion.deleted_ids) == {one.id, gone}
    assert (await memories.get(TENANT, mine, kept)).source_ids == [two.id]
    for missing in (one.id, gone):
        with pytest.raises(NotFound):
            await memories.get(TENANT, mine, missing)
        with pytest.raises(NotFound):
            await memories.delete(TENANT, mine, missing, partition=PARTITION)
    async with database.transaction(TENANT) as connection:
        for table in ("memory_history", "memory_sources", "tombstones"):
            cursor = await connection.execute(f"SELECT * FROM {table} WHERE memory_id = ANY(%s)", [[one.id, gone]])  # noqa: S608
            assert len(await cursor.fetchall()) == (2 if table == "tombstones" else 0)
    late = await store(database, [prepared(one, shared, own)])
    assert late.settlements[one.id].state is WriteState.STORED, "the first end of a write stays in the ledger"
    with pytest.raises(NotFound):
        await memories.get(TENANT, mine, one.id)


async def test_changes_keep_their_history_and_respect_the_tier(database: Database) -> None:
    mine, memories = agent("patched"), MemoryStore(database)
    sent = interaction(agent_id=mine)
    written = await store(database, [prepared(sent, FactDraft(fact="a"), FactDraft(fact="b"))])
    _, a, b = written.settlements[sent.id].memory_ids
    await memories.update(TENANT, mine, a, Patch(importance=0.4), partition=PARTITION)
    events = await memories.history(TENANT, mine, a)
    assert [event.event for event in events] == ["created", "updated"]
    patch = Patch(content=" A. ", vector=vector(), model=MODEL)
    with pytest.raises(Conflict):
        await memories.update(TENANT, mine, b, patch, partition=PARTITION)
    with pytest.raises(InvalidInput):
        await memories.update(TENANT, mine, a, Patch(outcome=Outcome.SUCCESS), partition=PARTITION)
    with pytest.raises(NotFound):
        await memories.update(TENANT, mine, MemoryId(new_id()), Patch(importance=0.4), partition=PARTITION)


async def test_pages_stay_complete_while_rows_are_added(database: Database) -> None:
    mine, memories = agent("paged"), MemoryStore(database)
    old = [interaction(f"old {n}", agent_id=mine, occurred_at=datetime(2025, 1, 1 + n, tzinfo=UTC)) for n in range(20)]
    await store(database, [prepared(each) for each in old])
    seen: list[str] = []
    cursor: str | None = None
    for round_ in range(10):
        page, cursor = await memories.list_page(TENANT, mine, limit=6, cursor=cursor)
        seen += [memory.content for memory in page]
        if cursor is None:
            break
        await store(database, [prepared(interaction(f"new {round_}", agent_id=mine))])
    assert sorted(content for content in seen if content.startswith("old")) == sorted(each.content for each in old)
    assert len(seen) == len(set(seen))
    only, _ = await memories.list_page(TENANT, mine, tier=Tier.SEMANTIC)
    assert only == []


async def test_a_hundred_concurrent_upserts_of_a_skill_are_all_counted(database: Database) -> None:
    mine, skills = agent("skilled"), SkillStore(database)

    async def learn(number: int) -> None:
        draft = SkillDraft(
            skill_name="deploy",
            trigger_pattern="deploy",
            policy={},
            successes=number % 2,
            failures=1 - number % 2,
            reward=float(number),
        )
        await skills.put(
            TENANT,
            mine,
            namespace="agent",
            user_id=None,
            draft=draft,
            vector=vector(),
            model=MODEL,
            partition=PARTITION,
        )

    await asyncio.gather(*(learn(number) for number in range(100)))
    row = await skills.get(TENANT, mine, "deploy", user_id=None)
    assert (row["success_count"], row["failure_count"], row["version"]) == (50, 50, 1)
    assert row["avg_reward"] == pytest.approx(49.5, rel=1e-4)
    with pytest.raises(NotFound):
        await skills.get(TenantId("tenant-b"), mine, "deploy", user_id=None)


async def test_a_users_own_skill_comes_before_the_agents(database: Database) -> None:
    mine, skills = agent("own-skill"), SkillStore(database)
    for namespace, user in (("agent", None), ("user:ann", ANN)):
        draft = SkillDraft(skill_name="greet", trigger_pattern=namespace, policy={})
        await skills.put(
            TENANT,
            mine,
            namespace=namespace,
            user_id=user,
            draft=draft,
            vector=vector(),
            model=MODEL,
            partition=PARTITION,
        )
    assert (await skills.get(TENANT, mine, "greet", user_id=ANN))["trigger_pattern"] == "user:ann"
    assert (await skills.get(TENANT, mine, "greet", user_id=UserId("bob")))["trigger_pattern"] == "agent"
    row, _ = await skills.record_outcome(
        TENANT, mine, "greet", user_id=ANN, success=True, reward=None, partition=PARTITION
    )
    assert (row["namespace"], row["success_count"]) == ("user:ann", 1)


async def test_a_dead_letter_stays_one_until_its_replay_is_committed(database: Database) -> None:
    ledger, sent = LedgerStore(database), interaction(agent_id=agent("dead"))
    await ledger.bury(PARTITION, sent, payload=b"body", error="venom", attempts=6)
    found = await ledger.find(TENANT, sent.id)
    assert found is not None
    assert (found.settlement.state, found.settlement.attempts) == (WriteState.DEAD_LETTERED, 6)
    with pytest.raises(RuntimeError):
        async with ledger.replaying(TENANT, sent.id):
            raise RuntimeError("the queue does not answer")
    letters, _ = await ledger.list_page(TENANT, limit=100, cursor=None)
    assert [letter.id for letter in letters] == [sent.id]
    with pytest.raises(NotFound):
        await ledger.drop(TenantId("tenant-b"), sent.id)
    async with ledger.replaying(TENANT, sent.id) as payload:
        assert payload == b"body"
    assert await ledger.find(TENANT, sent.id) is None
    with pytest.raises(NotFound):
        await ledger.drop(TENANT, sent.id)
