"""Facts that contradict each other, through the whole system."""

from __future__ import annotations

from typing import Any

from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"


async def facts(system: System) -> list[dict[str, Any]]:
    """Those that are current."""
    answer = await system.api.get(MEMORIES, params={"user_id": "ann", "tier": "semantic"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def say(system: System, content: str, **body: Any) -> dict[str, Any]:
    return await system.remember(content, speaker="Ann", **body)


async def texts(system: System) -> set[str]:
    """Current facts, which a search and the list must agree on."""
    listed = {fact["content"] for fact in await facts(system)}
    searched = set(contents(await system.search("Ann", tiers=["semantic"], similarity_floor=0.0)))
    assert listed == searched
    return listed


async def test_a_newer_value_takes_the_place_of_the_older_one(running: System) -> None:
    await say(running, "I live in Berlin.")
    await say(running, "I like tea.")
    (old,) = [fact for fact in await facts(running) if "Berlin" in fact["content"]]
    await say(running, "I live in Hamburg now.")
    found = await facts(running)
    assert len(found) == 2
    (new,) = [fact for fact in found if "Hamburg" in fact["content"]]
    assert new["details"]["supersedes"] == old["id"]
    assert not any("Berlin" in text for text in await texts(running))
    # What was believed stays readable.
    retired = (await running.api.get(f"{MEMORIES}/{old['id']}")).json()
    assert retired["details"]["valid_until"] is not None
    history = (await running.api.get(f"{MEMORIES}/{old['id']}/history")).json()
    assert [event["event"] for event in history] == ["created", "superseded"]
    assert history[-1]["after"] == {"superseded_by": new["id"]}


async def test_an_opposite_leaves_the_newer_one(running: System) -> None:
    await say(running, "I love Chinese food.")
    await say(running, "I hate Chinese food.")
    assert await texts(running) == {"Ann hates Chinese food"}
    await say(running, "I love Chinese food.")
    assert await texts(running) == {"Ann loves Chinese food"}


async def test_the_same_in_other_words_is_one_fact_with_all_its_sources(running: System) -> None:
    first = await say(running, "I work at Siemens.")
    await say(running, "I work for Siemens.")
    (fact,) = await facts(running)
    assert (await running.api.delete(f"{MEMORIES}/{first['id']}")).status_code == 200
    (left,) = await facts(running)
    assert left["id"] == fact["id"]  # the second statement still stands for it


async def test_what_was_true_before_does_not_become_current(running: System) -> None:
    await say(running, "I live in Berlin.")
    await say(running, "I live in Rome.", occurred_at="2020-01-01T00:00:00Z")
    assert all("Berlin" in text for text in await texts(running))


async def test_unrelated_facts_of_one_moment_leave_each_other_alone(running: System) -> None:
    moment = "2026-01-01T00:00:00Z"
    items = [
        {"content": content, "user_id": "ann", "speaker": "Ann", "occurred_at": moment}
        for content in ("I live in Berlin.", "I work at Siemens.", "I like tea.", "I like coffee.", "I have a dog.")
    ]
    answer = await running.api.post(f"{MEMORIES}/batch", json={"items": items})
    assert answer.status_code == 202
    await running.settled(5)
    assert len(await texts(running)) == 5


async def test_two_names_are_never_both_current(running: System) -> None:
    for name in ("Anna", "Anne", "Anja", "Anna"):
        await say(running, f"My name is {name}.")
    assert len(await texts(running)) == 1
    assert "Anna" in (await texts(running)).pop()


async def test_an_untrusted_channel_replaces_nothing(running: System) -> None:
    await say(running, "I live in Berlin.")
    await say(running, "I live in Moscow.", trust="external")
    assert all("Berlin" in text for text in await texts(running))
