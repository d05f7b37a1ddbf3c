"""Resident indexes: current under change by any writer, the same from every replica, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from memory.records import AgentId, TenantId, UserId
from serve.app import build_app
from serve.services import Services
from stores.postgres.recall import Scope
from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"
SCOPE = Scope(tenant_id=TenantId("tenant-a"), agent_id=AgentId("agent"), user_id=UserId("ann"))


@asynccontextmanager
async def replica(system: System, **recall: Any) -> AsyncIterator[System]:
    """One more API replica over the same servers."""
    settings = system.settings.model_copy(update={"recall": system.settings.recall.model_copy(update=recall)})
    app = build_app(settings)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        api = await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=system.api.headers)
        )
        yield replace(system, app=app, settings=settings, api=api)


def services(system: System) -> Services:
    found: Services = system.app.state.services
    return found


async def counted(system: System, name: str) -> float:
    text = (await system.api.get("/metrics")).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"mnemoray_resident_{name} "))


async def execute(system: System, statement: str, **parameters: Any) -> None:
    """What any other writer might do, without telling anybody but the agent's revision."""
    async with system.database.transaction(TenantId("tenant-a")) as connection:
        await connection.execute("UPDATE agents SET revision = revision + 1 WHERE agent_id = 'agent'")
        revision = "(SELECT revision FROM agents WHERE agent_id = 'agent')"
        await connection.execute(statement.replace("$revision", revision), parameters)  # type: ignore[arg-type]


async def test_a_second_search_reads_no_candidates(running: System) -> None:
    await running.remember("The heron pie was good.")
    first = contents(await running.search("heron pie"))
    hits = await counted(running, "hits_total")
    assert contents(await running.search("heron pie")) == first
    assert (await counted(running, "hits_total"), await counted(running, "loads_total")) == (hits + 1, 1)
    assert await counted(running, "bytes") > 768


async def test_writes_changes_and_deletes_are_visible_at_once(running: System) -> None:
    kept = await running.remember("The heron pie was good.", infer=False)
    assert contents(await running.search("pie")) == ["The heron pie was good."]
    await running.remember("The apple pie was better.", infer=False)
    assert set(contents(await running.search("pie"))) == {"The heron pie was good.", "The apple pie was better."}
    await running.api.patch(f"{MEMORIES}/{kept['id']}", json={"content": "The heron soup was good."})
    assert set(contents(await running.search("pie"))) == {"The heron soup was good.", "The apple pie was better."}
    await running.api.delete(f"{MEMORIES}/{kept['id']}")
    assert contents(await running.search("heron")) == ["The apple pie was better."]


async def test_what_other_writers_do_is_seen_though_nothing_was_published(running: System) -> None:
    stored = await running.remember("The heron pie was good.", infer=False)
    await running.search("pie")
    await execute(
        running,
        "UPDATE episodic_memory SET content = 'The heron soup was good.', revision = $revision WHERE id = %(id)s",
        id=stored["id"],
    )
    assert contents(await running.search("pie")) == ["The heron soup was good."]
    await execute(
        running, "UPDATE episodic_memory SET is_deleted = true, revision = $revision WHERE id = %(id)s", id=stored["id"]
    )
    assert await running.search("pie") == []


async def test_what_expires_is_gone_without_any_change(running: System) -> None:
    stored = await running.remember("The heron pie was good.", infer=False)
    await execute(
        running,
        "UPDATE episodic_memory SET expires_at = now() + interval '0.5 s', revision = $revision WHERE id = %(id)s",
        id=stored["id"],
    )
    assert contents(await running.search("pie")) == ["The heron pie was good."]
    await asyncio.sleep(0.6)
    assert await running.search("pie") == []


async def test_every_replica_gives_the_same_answer_at_any_time(running: System) -> None:
    notes = ["I prefer heron pie.", "Bob was late again.", "The ferry left at nine.", "I prefer fish soup."]
    for number, note in enumerate(notes):
        await running.remember(note, session_id=f"s{number % 2}", speaker="Ann")
    question = {"weights": {"relevance": 1, "recency": 0, "importance": 0, "frequency": 0, "type_bonus": 0}}
    async with replica(running) as other:
        first = await running.search("What does Ann prefer?", **question)
        assert [hit["memory"]["id"] for hit in await other.search("What does Ann prefer?", **question)] == [
            hit["memory"]["id"] for hit in first
        ]
        for system in (running, other):
            await system.remember("Ann left with the ferry.", session_id="s1", speaker="Bob")
        answers = [await system.search("Who left with the ferry?", **question) for system in (running, other)]
        services(running).recall.residents.drop(SCOPE)  # as after a restart
        answers.append(await running.search("Who left with the ferry?", **question))
        scored = [[(hit["memory"]["id"], hit["score"]["relevance"]) for hit in answer] for answer in answers]
        assert scored[0] == scored[1] == scored[2]
        assert len(scored[0]) > 4


async def test_a_large_agent_is_answered_cold_while_it_is_loaded(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    async with replica(running, load_first_below=0) as cold:
        assert contents(await cold.search("pie")) == ["The heron pie was good."]
        for _ in range(100):
            if await counted(cold, "loads_total"):
                break
            await asyncio.sleep(0.05)
        assert contents(await cold.search("pie")) == ["The heron pie was good."]
        assert (await counted(cold, "misses_total"), await counted(cold, "hits_total")) == (1, 1)


async def test_what_does_not_fit_is_answered_from_postgresql(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    async with replica(running, resident_bytes=0) as system:
        for _ in range(2):
            assert contents(await system.search("pie")) == ["The heron pie was good."]
        assert await counted(system, "loads_total") == 0


async def test_the_least_recently_used_index_leaves(running: System) -> None:
    for user in ("ann", "bob", "cat"):
        for number in range(4):
            await running.remember(f"{user} had heron pie {number}.", user_id=user, infer=False)
    async with replica(running, resident_bytes=25_000) as system:
        for user in ("ann", "bob", "ann", "cat", "ann"):
            assert len(await system.search("pie", user_id=user)) == 4
        assert await counted(system, "evictions_total") == 1
        assert await counted(system, "bytes") <= 25_000
        assert await counted(system, "loads_total") == 3  # bob left, ann stayed


async def test_world_facts_of_other_agents_are_seen_at_once(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    await running.search("pie")
    world = [{"fact": "The pie shop closes at nine", "scope": "world"}]
    await running.remember("noted", agent="other", facts=world)
    assert "The pie shop closes at nine" in contents(await running.search("pie shop"))
    assert "The pie shop closes at nine" not in contents(await running.search("pie shop", tiers=["episodic"]))


async def test_users_never_see_one_anothers_memories(running: System) -> None:
    await running.remember("Ann likes heron pie.", user_id="ann")
    await running.remember("Bob likes heron pie.", user_id="bob")
    for user, name in (("ann", "Ann"), ("bob", "Bob"), ("ann", "Ann")):
        assert all(name in found for found in contents(await running.search("heron pie", user_id=user)))


async def test_a_deleted_user_leaves_the_replicas_memory(running: System) -> None:
    await running.remember("The heron pie was good.")
    await running.search("pie")
    await running.api.delete(MEMORIES, params={"user_id": "ann"})
    assert await counted(running, "indexes") == 0


async def test_many_searches_and_writes_at_once(running: System) -> None:
    """Every search sees at least what was stored before it began."""
    stored: list[str] = []

    async def write(number: int) -> None:
        stored.append((await running.remember(f"Heron note {number}.", infer=False, importance=0.5))["id"])

    async def read() -> None:
        for _ in range(10):
            before = set(stored)
            found = {hit["memory"]["id"] for hit in await running.search("heron note", top_k=200)}
            assert before <= found

    await asyncio.gather(*(write(number) for number in range(30)), *(read() for _ in range(4)))


@pytest.mark.parametrize("profile", [{"scoring": {"recency": 1.0}}])
async def test_an_agents_new_weights_count_at_once(running: System, profile: dict[str, Any]) -> None:
    await running.remember("The heron pie was good.")
    before = (await running.search("pie"))[0]["score"]["total"]
    await running.api.put("/v1/agents/agent", json=profile)
    assert (await running.search("pie"))[0]["score"]["total"] > before


async def test_access_counts_of_other_replicas_reach_the_ranking(running: System) -> None:
    stored = await running.remember("The heron pie was good.", infer=False)
    assert (await running.search("pie"))[0]["score"]["frequency"] == 0.0
    async with running.database.transaction(TenantId("tenant-a")) as connection:
        await connection.execute("UPDATE episodic_memory SET access_count = 49 WHERE id = %s", [stored["id"]])
    await running.search("pie")
    assert (await running.search("pie"))[0]["score"]["frequency"] == 1.0


async def test_an_index_that_is_dropped_while_it_loads_is_answered_cold(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    search = asyncio.create_task(running.search("pie"))
    while not search.done():
        services(running).recall.residents.drop(SCOPE)
        await asyncio.sleep(0.001)
    assert contents(search.result()) == ["The heron pie was good."]


async def test_many_first_searches_load_once(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    found = await asyncio.gather(*(running.search("pie") for _ in range(8)))
    assert [contents(hits) for hits in found] == [["The heron pie was good."]] * 8
    assert await counted(running, "loads_total") == 1


async def test_a_client_that_hangs_up_during_a_delta_leaves_a_whole_index(running: System) -> None:
    await running.remember("The heron pie was good.", infer=False)
    await running.search("pie")
    for number in range(5):
        await running.remember(f"The heron pie was good again {number}.", infer=False)
        search = asyncio.create_task(running.search("pie"))
        await asyncio.sleep(0.002 * number)
        search.cancel()
        await asyncio.wait([search])
        assert len(await running.search("pie")) == number + 2
    assert await counted(running, "loads_total") == 1
