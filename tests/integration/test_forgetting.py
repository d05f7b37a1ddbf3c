"""Deletion: what is acknowledged as gone is gone from every read path, and does not come back."""

from __future__ import annotations

import asyncio

from memory.records import Partition, SessionId, WriteState
from stores.postgres.ledger import LedgerStore
from tests.builders import interaction
from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"


async def test_a_deleted_memory_leaves_every_read_path(running: System) -> None:
    stored = await running.remember("I prefer heron pie.", session_id="s")
    episode, fact = stored["memory_ids"]
    await running.api.patch(f"{MEMORIES}/{episode}", json={"importance": 0.9})
    deleted = await running.api.delete(f"{MEMORIES}/{episode}")
    assert deleted.json() == {"deleted": 2}
    assert await running.search("heron pie", session_id="s") == []
    assert (await running.api.get(MEMORIES)).json()["items"] == []
    session = (await running.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).json()
    assert session["messages"] == []
    context = await running.api.post(
        "/v1/agents/agent/context", json={"query": "heron pie", "user_id": "ann", "session_id": "s"}
    )
    assert context.json()["items"] == []
    for gone in (episode, fact):
        assert (await running.api.get(f"{MEMORIES}/{gone}")).status_code == 404
        assert (await running.api.get(f"{MEMORIES}/{gone}/history")).status_code == 404
        assert (await running.api.delete(f"{MEMORIES}/{gone}")).status_code == 404


async def test_a_fact_with_another_source_stays(running: System) -> None:
    first = await running.remember("I prefer heron pie.")
    await running.remember("Really, I prefer heron pie.")
    await running.api.delete(f"{MEMORIES}/{first['id']}")
    facts = (await running.api.get(MEMORIES, params={"tier": "semantic"})).json()["items"]
    assert [fact["content"] for fact in facts] == ["User prefers heron pie"]


async def test_a_write_that_is_deleted_in_flight_is_never_stored(system: System) -> None:
    accepted = (
        await system.api.post(MEMORIES, json={"content": "Forget me.", "user_id": "ann", "session_id": "s"})
    ).json()
    assert (await system.other.delete(f"{MEMORIES}/{accepted['id']}")).status_code == 404
    assert (await system.api.delete(f"{MEMORIES}/{accepted['id']}")).status_code == 200
    assert await system.search("forget me", session_id="s") == []
    await system.assign("shard-0")
    async with system.shard("shard-0"):
        ledger = await system.settled(1)
    assert (ledger["rejected"], ledger["reconciled"]) == (1, True)
    assert await system.search("forget me", session_id="s") == []


async def test_deleting_a_user_leaves_the_others(running: System) -> None:
    await running.remember("I prefer heron pie.")
    await running.remember("I prefer fish soup.", user_id="bob")
    answer = await running.api.delete(MEMORIES, params={"user_id": "ann"})
    assert answer.json() == {"deleted": 2}
    assert await running.search("prefer") == []
    assert "I prefer fish soup." in contents(await running.search("prefer", user_id="bob"))


async def test_new_content_replaces_the_old_one_and_what_followed_from_it(running: System) -> None:
    stored = await running.remember("I prefer heron pie.", session_id="s")
    changed = await running.api.patch(f"{MEMORIES}/{stored['id']}", json={"content": "I prefer fish soup."})
    assert changed.json()["content"] == "I prefer fish soup."
    for _ in range(100):
        facts = (await running.api.get(MEMORIES, params={"tier": "semantic"})).json()["items"]
        if facts:
            break
        await asyncio.sleep(0.05)
    assert [fact["content"] for fact in facts] == ["User prefers fish soup"]
    session = (await running.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).json()
    assert [message["content"] for message in session["messages"]] == ["I prefer fish soup."]
    events = (await running.api.get(f"{MEMORIES}/{stored['id']}/history")).json()
    assert [event["event"] for event in events] == ["created", "updated"]
    assert events[1]["before"]["content"] == "I prefer heron pie."


async def test_deleting_a_user_reaches_sessions_queues_and_dead_letters(system: System) -> None:
    base, user = "/v1/agents/agent/sessions/s", {"user_id": "ann"}
    await system.api.post(MEMORIES, json={"content": "Forget me.", "user_id": "ann", "session_id": "s"})
    await system.api.patch(f"{base}/variables", params=user, json={"variables": {"city": "Oslo"}})
    await system.api.patch(f"{base}/variables", params={"user_id": "bob"}, json={"variables": {"city": "Rome"}})
    buried = interaction("Buried.", session_id=SessionId("s"))
    ledger = LedgerStore(system.database)
    await ledger.bury(Partition(1), buried, payload=b"Buried.", error="venom", attempts=6)
    assert (await system.api.delete(MEMORIES, params=user)).status_code == 200
    session = (await system.api.get(base, params=user)).json()
    assert (session["messages"], session["variables"]) == ([], {})
    assert (await system.api.get(base, params={"user_id": "bob"})).json()["variables"] == {"city": "Rome"}
    assert (await system.api.get("/v1/dead-letters")).json()["items"] == []
    late = await ledger.bury(Partition(1), interaction("Late."), payload=b"Late.", error="venom", attempts=6)
    assert late is not None
    assert late.state is WriteState.REJECTED
    assert (await system.api.get("/v1/dead-letters")).json()["items"] == []
    await system.assign("shard-0")
    async with system.shard("shard-0"):
        for _ in range(100):
            if (await system.api.get("/v1/ledger")).json()["pending"] == 0:
                break
            await asyncio.sleep(0.05)
        assert (await system.api.get(MEMORIES, params=user)).json()["items"] == []
        await system.remember("A new start.")
    assert "A new start." in contents(await system.search("start"))
    assert "Forget me." not in contents(await system.search("forget"))


async def test_a_deleted_skill_leaves_the_cache(running: System) -> None:
    skills = "/v1/agents/agent/skills"
    put = await running.api.put(f"{skills}/deploy", json={"trigger_pattern": "deploy", "policy": {}})
    assert len((await running.api.get(skills)).json()["items"]) == 1
    assert (await running.api.delete(f"{MEMORIES}/{put.json()['id']}")).json() == {"deleted": 1}
    assert (await running.api.get(skills)).json()["items"] == []
    assert (await running.api.get(f"{skills}/deploy")).status_code == 404
