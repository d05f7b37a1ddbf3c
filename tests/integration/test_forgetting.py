"""Deletion: what is acknowledged as gone is gone from every read path, and does not come back."""

from __future__ import annotations

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
        await __import__("asyncio").sleep(0.05)
    assert [fact["content"] for fact in facts] == ["User prefers fish soup"]
    session = (await running.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).json()
    assert [message["content"] for message in session["messages"]] == ["I prefer fish soup."]
    events = (await running.api.get(f"{MEMORIES}/{stored['id']}/history")).json()
    assert [event["event"] for event in events] == ["created", "updated"]
    assert events[1]["before"]["content"] == "I prefer heron pie."
