"""The write path: nothing accepted is lost, doubled, or left unexplained."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from memory.records import AgentId, TenantId
from memory.routing import partition_of
from stores.valkey import keys
from tests.builders import new_id
from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"


async def test_a_write_is_visible_in_its_session_at_once_and_everywhere_when_stored(system: System) -> None:
    accepted = await system.api.post(
        MEMORIES, json={"content": "The code word is heron.", "user_id": "ann", "session_id": "s"}
    )
    assert accepted.status_code == 202
    assert accepted.json()["state"] == "pending"
    assert "The code word is heron." in contents(await system.search("code word", session_id="s"))
    assert await system.search("code word", session_id="another") == []
    await system.assign("shard-0")
    async with system.shard("shard-0"):
        await system.settled(1)
    assert "The code word is heron." in contents(await system.search("code word", session_id="another"))


async def test_persistent_writes_answer_with_everything_that_was_stored(running: System) -> None:
    stored = await running.remember("My name is Ann. I prefer green tea.", speaker="Ann")
    assert stored["state"] == "stored"
    assert len(stored["memory_ids"]) == 3
    facts = await running.api.get(MEMORIES, params={"tier": "semantic"})
    assert {item["content"] for item in facts.json()["items"]} == {"Ann's name is Ann", "Ann prefers green tea"}
    operation = (await running.api.get(f"/v1/operations/{stored['operation_id']}")).json()
    assert operation["state"] == "stored"
    assert operation["attempts"] == 1


async def test_infer_false_stores_as_given(running: System) -> None:
    stored = await running.remember("My name is Ann.", infer=False)
    assert stored["memory_ids"] == [stored["id"]]


async def test_a_fact_said_twice_is_one_row(running: System) -> None:
    await running.remember("I prefer green tea.")
    await running.remember("I PREFER  green tea!")
    facts = (await running.api.get(MEMORIES, params={"tier": "semantic"})).json()["items"]
    assert len(facts) == 1


async def test_backdated_episodes_keep_their_date_and_a_naive_one_is_refused(running: System) -> None:
    stored = await running.remember("We met in spring.", occurred_at="2019-05-08T13:56:00+02:00")
    memory = (await running.api.get(f"{MEMORIES}/{stored['id']}")).json()
    assert datetime.fromisoformat(memory["created_at"]) == datetime(2019, 5, 8, 11, 56, tzinfo=UTC)
    refused = await running.api.post(
        MEMORIES, json={"content": "x", "user_id": "ann", "occurred_at": "2019-05-08T13:56:00"}
    )
    assert refused.status_code == 422
    assert "timezone" in refused.json()["detail"]


async def test_one_idempotency_key_is_one_memory(running: System) -> None:
    body = {"content": "Once only.", "user_id": "ann", "idempotency_key": "k1"}
    answers = await asyncio.gather(*(running.api.post(MEMORIES, json=body) for _ in range(20)))
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [202]
    await running.settled(1)
    other = await running.api.post(MEMORIES, json=body | {"content": "Something else."})
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"


async def test_the_ledger_knows_a_key_that_valkey_forgot(running: System) -> None:
    first = await running.remember("Once only.", idempotency_key="k1")
    partition = partition_of(TenantId("tenant-a"), AgentId("agent"))
    forgotten = keys.idempotency(partition, TenantId("tenant-a"), AgentId("agent"), "k1")
    assert await running.valkey.delete(forgotten) == 1
    second = await running.api.post(
        MEMORIES,
        json={"content": "Once only.", "user_id": "ann", "idempotency_key": "k1", "wait": "persistent"},
    )
    assert second.json()["state"] == "duplicate"
    assert second.json()["memory_ids"] == [first["id"]]
    ledger = await running.settled(2)
    assert (ledger["stored"], ledger["duplicate"], ledger["reconciled"]) == (1, 1, True)


async def test_a_full_stream_refuses_and_changes_nothing(system: System) -> None:
    ingest = system.settings.ingest.model_copy(update={"max_stream_length": 2})
    system.app.state.services.streams._ingest = ingest
    statuses = []
    for number in range(4):
        answer = await system.api.post(
            MEMORIES, json={"content": f"write {number}", "user_id": "ann", "session_id": "s"}
        )
        statuses.append(answer.status_code)
    assert statuses == [202, 202, 429, 429]
    assert int(answer.headers["Retry-After"]) >= 1
    session = (await system.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).json()
    assert [message["content"] for message in session["messages"]] == ["write 0", "write 1"]
    ledger = (await system.api.get("/v1/ledger")).json()
    assert (ledger["accepted"], ledger["pending"], ledger["reconciled"]) == (2, 2, True)


async def test_a_batch_answers_for_each_item(running: System) -> None:
    items = [
        {"content": f"item {number}", "user_id": "ann", "idempotency_key": f"k{number % 3}"} for number in range(3)
    ]
    items.append({"content": "another", "user_id": "ann", "idempotency_key": "k0"})
    answer = await running.api.post(f"{MEMORIES}/batch", json={"items": items})
    assert answer.status_code == 202
    outcomes = [item["accepted"] is not None for item in answer.json()["items"]]
    assert outcomes == [True, True, True, False]
    assert answer.json()["items"][3]["problem"]["status"] == 409


async def test_shards_that_take_over_neither_lose_nor_double(system: System) -> None:
    """Two shards, then three, then one, while a client writes."""
    await system.assign("shard-0", "shard-1")
    agents = [f"agent-{number}" for number in range(12)]

    async def write() -> int:
        sent = 0
        for number in range(240):
            agent = agents[number % len(agents)]
            answer = await system.api.post(
                f"/v1/agents/{agent}/memories", json={"content": f"note {number}", "user_id": "ann", "infer": False}
            )
            assert answer.status_code == 202
            sent += 1
            await asyncio.sleep(0.005)
        return sent

    async with system.shard("shard-0"), system.shard("shard-1"), system.shard("shard-2"):
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.7)
        moved = await system.assign("shard-0", "shard-1", "shard-2")
        assert 0 < moved < 40
        await asyncio.sleep(0.7)
        await system.assign("shard-2")
        sent = await writing
        ledger = await system.settled(sent)
    assert (ledger["stored"], ledger["reconciled"]) == (sent, True)
    found = []
    for agent in agents:
        page = (await system.api.get(f"/v1/agents/{agent}/memories", params={"limit": 500})).json()
        found += [item["content"] for item in page["items"]]
    assert sorted(found) == sorted(f"note {number}" for number in range(240))


async def test_a_poisoned_write_ends_as_a_dead_letter_and_takes_nobody_with_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.rules.classify", _poisonous := _Poisonous(), raising=True)
    for content in ("good one", "poison", "good two"):
        await system.api.post(MEMORIES, json={"content": content, "user_id": "ann"})
    ingest = system.settings.ingest.model_copy(update={"max_attempts": 2, "retry_backoff_s": 0.05})
    system.settings = system.settings.model_copy(update={"ingest": ingest})
    await system.assign("shard-0")
    async with system.shard("shard-0"):
        ledger = await system.settled(3)
        assert (ledger["stored"], ledger["dead_lettered"], ledger["reconciled"]) == (2, 1, True)
        letter = (await system.api.get("/v1/dead-letters")).json()["items"][0]
        assert letter["content"] == "poison"
        assert "venom" in letter["error"]
        assert (await system.other.get("/v1/dead-letters")).json()["items"] == []
        assert (await system.other.post(f"/v1/dead-letters/{letter['id']}/replay")).status_code == 404
        _poisonous.antidote = True
        replayed = await system.api.post(f"/v1/dead-letters/{letter['id']}/replay")
        assert replayed.json()["state"] == "pending"
        ledger = await system.settled(3)
    assert (ledger["stored"], ledger["dead_lettered"], ledger["reconciled"]) == (3, 0, True)
    assert (await system.api.delete(f"/v1/dead-letters/{letter['id']}")).status_code == 404


class _Poisonous:
    """A classifier that dies of one content."""

    def __init__(self) -> None:
        from memory.rules import classify

        self._classify = classify
        self.antidote = False

    def __call__(self, interaction: object) -> object:
        if getattr(interaction, "content", "") == "poison" and not self.antidote:
            raise RuntimeError("venom")
        return self._classify(interaction)  # type: ignore[arg-type]


async def test_unknown_operations_are_not_found(system: System) -> None:
    unknown = new_id()
    assert (await system.api.get(f"/v1/operations/op-1-{unknown.hex}")).status_code == 404
    assert (await system.api.get("/v1/operations/nonsense")).status_code == 422
