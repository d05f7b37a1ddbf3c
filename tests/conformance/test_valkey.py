"""Working memory and ingest streams against a real Valkey."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.paths import DataDir
from cluster.valkey_server import ValkeyServer
from configs.settings import IngestSettings, WorkingMemorySettings
from memory.errors import Backpressure, Conflict, InvalidInput, Unavailable
from memory.records import (
    AgentId,
    FactDraft,
    Interaction,
    Partition,
    SessionId,
    Settlement,
    TenantId,
    UserId,
    WorkingMemory,
    WriteState,
)
from stores.valkey import keys
from stores.valkey.codec import decode_interaction, decode_message, encode_interaction, encode_message, message_of
from stores.valkey.connection import Valkey, open_valkey
from stores.valkey.ingest import GROUP, IngestStreams, Listener, PartitionReader
from stores.valkey.keys import SessionKey
from stores.valkey.working import WorkingMemoryStore
from tests.builders import NOW, interaction, new_id

PARTITION = Partition(7)
TENANT, AGENT = TenantId("tenant-a"), AgentId("agent")


def session(user: str = "ann", name: str = "s1") -> SessionKey:
    return SessionKey(
        tenant_id=TENANT, agent_id=AGENT, user_id=UserId(user), session_id=SessionId(name), partition=PARTITION
    )


def streams(valkey: Valkey, *, working: WorkingMemorySettings | None = None, length: int = 1000) -> IngestStreams:
    ingest = IngestSettings(max_stream_length=length)
    return IngestStreams(valkey, ingest=ingest, working=working or WorkingMemorySettings())


async def reader(valkey: Valkey, consumer: str = "c1") -> PartitionReader:
    found = PartitionReader(valkey, PARTITION, consumer)
    await found.ensure_group()
    return found


@given(
    content=st.text(st.characters(codec="utf-8"), min_size=1),
    facts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=3),
    key=st.none() | st.text(st.characters(codec="utf-8")),
)
def test_an_interaction_survives_the_codec(content: str, facts: list[str], key: str | None) -> None:
    drafts = tuple(FactDraft(fact=fact, valid_from=NOW) for fact in facts)
    sent = interaction(content, facts=drafts, idempotency_key=key, metadata={"a": [1, None, content]})
    assert decode_interaction(encode_interaction(sent)) == sent
    assert decode_message(encode_message(message_of(sent))) == message_of(sent)


def test_what_is_no_entry_is_refused() -> None:
    for data in (b"", b"{}", b"[]", b'{"v": 2}', b"\xff"):
        with pytest.raises(InvalidInput):
            decode_interaction(data)


async def test_an_accepted_write_is_in_its_session_and_its_stream(valkey: Valkey) -> None:
    sent = interaction()
    (accepted,) = await streams(valkey).accept([sent], partition=PARTITION, fsync=True)
    assert (accepted.id, accepted.duplicate, accepted.error) == (sent.id, False, None)
    working = await WorkingMemoryStore(valkey, WorkingMemorySettings()).get(session())
    assert working.messages == (message_of(sent),)
    (delivery,) = await (await reader(valkey)).read(10, 100)
    assert delivery.interaction == sent
    assert await streams(valkey).pending(sent.id, partition=PARTITION) == TENANT
    assert await streams(valkey).counts(TENANT, 64) == (1, 1)
    assert await streams(valkey).counts(TenantId("tenant-b"), 64) == (0, 0)


async def test_a_race_of_one_key_is_one_entry(valkey: Valkey) -> None:
    sent = [interaction(idempotency_key="k") for _ in range(20)]
    found = await asyncio.gather(*(streams(valkey).accept([one], partition=PARTITION) for one in sent))
    answers = [answer for (answer,) in found]
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.duplicate for answer in answers) == 1
    assert await valkey.xlen(keys.stream(PARTITION)) == 1
    (other,) = await streams(valkey).accept([interaction("x", idempotency_key="k")], partition=PARTITION)
    assert isinstance(other.error, Conflict)


async def test_a_full_stream_changes_nothing(valkey: Valkey) -> None:
    small = streams(valkey, length=2)
    found = await small.accept([interaction(str(n)) for n in range(4)], partition=PARTITION)
    assert [isinstance(one.error, Backpressure) for one in found] == [False, False, True, True]
    working = await WorkingMemoryStore(valkey, WorkingMemorySettings()).get(session())
    assert [message.content for message in working.messages] == ["0", "1"]
    assert await small.counts(TENANT, 64) == (2, 2)


@pytest.mark.parametrize("bounds", [{"max_messages": 3}, {"max_bytes": 700}])
async def test_a_bounded_session_spills_its_oldest(valkey: Valkey, bounds: dict[str, int]) -> None:
    settings = WorkingMemorySettings(**bounds)
    many = streams(valkey, working=settings)
    await many.accept([interaction(f"line {n}") for n in range(10)], partition=PARTITION)
    working = await WorkingMemoryStore(valkey, settings).get(session())
    kept = [message.content for message in working.messages]
    assert kept == [f"line {n}" for n in range(10)][-len(kept) :]
    assert 1 <= len(kept) <= 4
    assert working.spilled == 10 - len(kept)


SUMMARISED = WorkingMemorySettings(max_messages=3, summary_after=4)


async def said(valkey: Valkey, numbers: range) -> list[Interaction]:
    sent = [interaction(f"line {number}") for number in numbers]
    await streams(valkey, working=SUMMARISED).accept(sent, partition=PARTITION)
    return sent


async def requests(valkey: Valkey) -> list[SessionKey | None]:
    found = PartitionReader(valkey, PARTITION, "c1", stream=keys.extractions(PARTITION))
    await found.ensure_group()
    return [delivery.session for delivery in await found.read(10, 50)]


async def test_a_summary_is_asked_for_once_and_takes_the_place_of_what_left(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, SUMMARISED)
    await said(valkey, range(6))
    assert await requests(valkey) == []  # three left, four are wanted
    await said(valkey, range(6, 9))
    assert await requests(valkey) == [session()]
    left = await store.left(session())
    assert [message.content for message in left.messages] == [f"line {number}" for number in (2, 3, 4, 5)]  # bounded
    await said(valkey, range(9, 11))
    assert await store.summarise(session(), left, "lines", origin="rules") is False
    assert (await store.get(session())).summary == "lines"
    later = await store.left(session())
    assert ([message.content for message in later.messages], later.summary) == (["line 6", "line 7"], "lines")
    assert await requests(valkey) == []
    await said(valkey, range(11, 14))
    assert await requests(valkey) == [session()]


async def test_what_is_forgotten_is_in_no_summary(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, SUMMARISED)
    sent = await said(valkey, range(6))

    async def forget(one: Interaction) -> None:
        await store.forget(tenant_id=TENANT, agent_id=AGENT, partition=PARTITION, ids=[one.id])

    left = await store.left(session())
    await forget(sent[1])
    assert await store.summarise(session(), left, "with line 1", origin="rules") is True  # it came too late
    assert (await store.get(session())).summary is None
    left = await store.left(session())
    assert [message.content for message in left.messages] == ["line 0", "line 2"]
    assert await store.summarise(session(), left, "lines 0 and 2", origin="rules") is False
    await forget(sent[5])  # in no summary
    assert (await store.get(session())).summary == "lines 0 and 2"
    await forget(sent[2])
    assert (await store.get(session())).summary is None


async def test_what_is_changed_is_in_no_summary(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, SUMMARISED)
    sent = await said(valkey, range(6))
    left = await store.left(session())
    await store.replace_message(session(), sent[0].id, "another")
    assert await store.summarise(session(), left, "line 0", origin="rules") is True
    left = await store.left(session())
    assert left.messages[0].content == "another"
    assert await store.summarise(session(), left, "another", origin="rules") is False
    await store.replace_message(session(), sent[0].id, "a third")
    assert (await store.get(session())).summary is None


async def test_a_session_that_ended_takes_no_summary(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, SUMMARISED)
    await said(valkey, range(6))
    left = await store.left(session())
    await store.end(session())
    assert await store.summarise(session(), left, "lines", origin="rules") is False
    assert await store.get(session()) == WorkingMemory()
    await said(valkey, range(6))
    await store.forget_user(tenant_id=TENANT, agent_id=AGENT, user_id="ann", partition=PARTITION)
    assert await valkey.keys("*wm*") == []


async def test_deliveries_are_counted_before_they_are_processed(valkey: Valkey) -> None:
    await streams(valkey).accept([interaction()], partition=PARTITION)
    crashed = await reader(valkey, "crashed")
    (first,) = await crashed.read(10, 100)
    assert first.attempts == 1
    other = await reader(valkey, "other")
    assert await other.read(10, 50) == []
    assert await other.abandoned(0)
    assert not await other.abandoned(60_000)
    for attempt in (2, 3):
        (again,) = await other.reclaim(10, 0)
        assert (again.attempts, again.entry_id) == (attempt, first.entry_id)


async def test_settling_removes_publishes_and_tells_who_waits(valkey: Valkey) -> None:
    listener = Listener(valkey, "replies")
    await listener.open()
    try:
        sent = interaction(reply_to="replies")
        with listener.expecting([sent.id]):
            await streams(valkey).accept([sent], partition=PARTITION)
            consumer = await reader(valkey)
            deliveries = await consumer.read(10, 100)
            await asyncio.sleep(0.2)
            settlement = Settlement(operation_id=sent.id, state=WriteState.STORED, memory_ids=(sent.id,))
            await consumer.settle(deliveries, revisions={(TENANT, AGENT): 5}, settlements=[settlement])
            assert await listener.wait_for(sent.id, timeout_s=5) == settlement
    finally:
        await listener.close()
    assert await valkey.xlen(keys.stream(PARTITION)) == 0
    assert (await valkey.xpending(keys.stream(PARTITION), GROUP))["pending"] == 0
    assert await streams(valkey).counts(TENANT, 64) == (1, 0)
    store = WorkingMemoryStore(valkey, WorkingMemorySettings())
    assert await store.revision(TENANT, AGENT, PARTITION) == 5
    await consumer.settle(deliveries, revisions={(TENANT, AGENT): 4}, settlements=[])
    assert await store.revision(TENANT, AGENT, PARTITION) == 5
    assert await streams(valkey).counts(TENANT, 64) == (1, 0)


async def test_an_unreadable_entry_is_delivered_as_such(valkey: Valkey) -> None:
    await valkey.xadd(keys.stream(PARTITION), {"kind": "write", "id": "", "tenant": "t", "body": "garbage"})
    (delivery,) = await (await reader(valkey)).read(10, 100)
    assert delivery.error is not None
    assert delivery.raw == b"garbage"


async def test_messages_are_forgotten_and_replaced_by_id(valkey: Valkey) -> None:
    sent = [interaction(f'say "id":"{n}" {n}') for n in range(3)]
    await streams(valkey).accept(sent, partition=PARTITION)
    store = WorkingMemoryStore(valkey, WorkingMemorySettings())
    await store.forget(tenant_id=TENANT, agent_id=AGENT, partition=PARTITION, ids=[sent[1].id, new_id()])
    await store.replace_message(session(), sent[2].id, "new")
    working = await store.get(session())
    assert working.messages == (message_of(sent[0]), replace(message_of(sent[2]), content="new"))


async def test_sessions_of_similar_names_are_apart(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, WorkingMemorySettings())
    for user, name in (("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("名前", "c")):
        await store.set_variables(session(user, name), {"who": [user, name]})
    for user, name in (("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("名前", "c")):
        assert (await store.get(session(user, name))).variables == {"who": [user, name]}


async def test_variables_are_bounded_and_a_refused_set_changes_nothing(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, WorkingMemorySettings(max_variables_bytes=50))
    await store.set_variables(session(), {"a": "x" * 20})
    with pytest.raises(InvalidInput):
        await store.replace_reasoning(session(), "y" * 40)
    working = await store.get(session())
    assert (working.variables, working.reasoning) == ({"a": "x" * 20}, None)
    assert await store.delete_variables(session(), ["a", "b"]) == 1
    assert await store.end(session()) is False


async def test_a_late_fill_of_the_skill_cache_does_not_undo_a_drop(valkey: Valkey) -> None:
    store = WorkingMemoryStore(valkey, WorkingMemorySettings())
    await store.put_skills(TENANT, AGENT, PARTITION, b"old", revision=3)
    assert await store.get_skills(TENANT, AGENT, PARTITION) == b"old"
    await store.drop_skills(TENANT, AGENT, PARTITION, revision=4)
    await store.put_skills(TENANT, AGENT, PARTITION, b"old", revision=3)
    assert await store.get_skills(TENANT, AGENT, PARTITION) is None


async def test_accepted_writes_survive_a_kill_of_the_server() -> None:
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    data = DataDir(root)
    data.create()
    server = ValkeyServer(data)
    server.start()
    client = open_valkey(server.url, cluster=False)
    try:
        sent = [interaction(str(n)) for n in range(50)]
        await streams(client).accept(sent, partition=PARTITION)
        # What a slow disk would show: every other setting answers before it writes while an fsync is under way.
        assert (await client.config_get("appendfsync")) == {"appendfsync": "always"}
        assert server._process is not None
        server._process.kill()
        server._process.wait()
        with pytest.raises(Unavailable):
            await streams(client).accept([interaction()], partition=PARTITION)
        server.start()
        consumer = await reader(client)
        assert [delivery.interaction for delivery in await consumer.read(100, 100)] == sent
    finally:
        await client.aclose()
        server.stop()


@pytest.mark.parametrize("setting", [{"maxmemory": "1"}, {"min-replicas-to-write": "1"}])
async def test_a_server_that_takes_no_writes_is_unavailable(redis_url: str, setting: dict[str, str]) -> None:
    client = open_valkey(redis_url, cluster=False)
    await client.flushall()
    ((name, value),) = setting.items()
    before = await client.config_get(name)
    await client.config_set(name, value)
    try:
        with pytest.raises(Unavailable):
            await streams(client).accept([interaction()], partition=PARTITION)
        with pytest.raises(Unavailable):
            await WorkingMemoryStore(client, WorkingMemorySettings()).set_variables(session(), {"a": 1})
        assert await client.dbsize() == 0
    finally:
        await client.config_set(name, next(iter(before.values())))
        await client.aclose()
