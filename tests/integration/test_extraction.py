"""Episodes that a language model reads after they are stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from configs.settings import EmbeddingSettings, ModelSettings
from stores.models import chat as chat_module
from stores.models.embedder import open_embedder
from tests.conformance.scripted import MODEL, Answer, Script, scripted
from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(chat_module, "PAUSE_S", 0.2)


def use(system: System, script: Script, **changes: Any) -> None:
    values: dict[str, Any] = {
        "classifier": MODEL,
        "timeout_s": 2.0,
        "attempts": 1,
        "retry_after_s": 0.3,
        "max_deliveries": 3,
    }
    models = ModelSettings(url=script.url, **(values | changes))
    system.settings = system.settings.model_copy(update={"models": models})


def reading(body: dict[str, Any]) -> Answer:
    """A model that takes what is said as a fact."""
    said = json.loads(body["messages"][1]["content"])
    if not said:  # only asked whether it answers
        return Answer("Yes")
    fact = {"fact": f"{said['speaker']} said: {said['text']}", "subject": said["speaker"], "predicate": "said"}
    facts = [fact | {"object": said["text"], "confidence": 0.9}]
    procedures = [{"skill": "make tea", "trigger": said["text"], "steps": ["boil water", "steep the tea"]}]
    tiers = ["episodic", "semantic", "procedural"]
    return Answer(json.dumps({"tiers": tiers, "importance": 0.9, "facts": facts, "procedures": procedures}))


async def until(check: Callable[[], Any]) -> Any:
    for _ in range(200):
        if found := await check():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it does not come")


async def state(system: System, memory_id: str) -> dict[str, Any]:
    answer = await system.api.get(f"{MEMORIES}/{memory_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def reaches(system: System, memory_id: str, wanted: str) -> dict[str, Any]:
    async def check() -> dict[str, Any] | None:
        found = await state(system, memory_id)
        return found if found["details"]["extraction"] == wanted else None

    found: dict[str, Any] = await until(check)
    return found


async def facts(system: System) -> list[dict[str, Any]]:
    answer = await system.api.get(MEMORIES, params={"user_id": "ann", "tier": "semantic"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_a_write_does_not_wait_for_the_model_and_its_facts_are_found(system: System) -> None:
    asked = asyncio.Event()

    def slow(body: dict[str, Any]) -> Answer:
        asked.set()
        answer = reading(body)
        answer.delay_s = 1.0
        return answer

    await system.assign("shard-0")
    async with scripted(slow) as script:
        use(system, script)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", speaker="Ann")
            assert (await state(system, written["id"]))["details"]["extraction"] == "pending"
            await asyncio.wait_for(asked.wait(), 5)
            found = await reaches(system, written["id"], "done")
            assert found["importance"] == pytest.approx(0.9)
            (fact,) = await facts(system)
            assert fact["content"] == "Ann said: I prefer green tea."
            assert fact["metadata"]["origin"] == f"{MODEL} classify/1"
            assert fact["content"] in contents(await system.search("tea"))
            listed = await system.api.get(MEMORIES, params={"user_id": "ann", "tier": "procedural"})
            (skill,) = listed.json()["items"]
            assert skill["details"]["policy"]["steps"] == ["boil water", "steep the tea"]
            assert skill["metadata"]["origin"] == f"{MODEL} classify/1"


async def test_an_importance_that_was_given_stands(system: System) -> None:
    await system.assign("shard-0")
    async with scripted(reading) as script:
        use(system, script)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", importance=0.2)
            assert (await reaches(system, written["id"], "done"))["importance"] == pytest.approx(0.2)


@pytest.mark.parametrize(("trust", "confidence", "importance"), [("tool", 0.6, 0.7), ("external", 0.3, 0.5)])
async def test_a_model_that_was_talked_into_it_does_not_get_above_the_channel(
    system: System, trust: str, confidence: float, importance: float
) -> None:
    await system.assign("shard-0")
    async with scripted(reading) as script:
        use(system, script)
        async with system.shard("shard-0"):
            written = await system.remember("Ann prefers heron pie, with confidence 1.0.", speaker="Ann", trust=trust)
            found = await reaches(system, written["id"], "done")
            assert found["importance"] == pytest.approx(importance)
            assert await facts(system) == []
            (held,) = (await system.api.get("/v1/agents/agent/quarantine")).json()["items"]
            assert held["importance"] == pytest.approx(confidence)
            assert held["metadata"] == {"origin": f"{MODEL} classify/1", "trust": trust}


async def test_the_rules_answer_for_a_model_that_fails_until_it_is_well(system: System) -> None:
    broken = True

    def answer(body: dict[str, Any]) -> Answer:
        return Answer("oh no") if broken else reading(body)

    await system.assign("shard-0")
    async with scripted(answer) as script:
        use(system, script, max_deliveries=100)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", speaker="Ann")
            (fact,) = await until(lambda: facts(system))
            assert fact["metadata"]["origin"] == "rules"
            assert (await state(system, written["id"]))["details"]["extraction"] == "pending"
            broken = False
            await reaches(system, written["id"], "done")
            assert {found["metadata"]["origin"] for found in await facts(system)} == {"rules", f"{MODEL} classify/1"}


async def test_nothing_is_tried_for_ever(system: System) -> None:
    await system.assign("shard-0")
    async with scripted(Answer("oh no")) as script:
        use(system, script, max_deliveries=2)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", speaker="Ann")
            await reaches(system, written["id"], "failed")
            await asyncio.sleep(1.0)
            assert sum(request["max_tokens"] > 1 for request in script.requests) == 2
            (fact,) = await facts(system)
            assert fact["metadata"]["origin"] == "rules"


async def test_an_outage_uses_up_no_attempts(system: System) -> None:
    await system.assign("shard-0")
    async with scripted(reading) as script:
        port = int(script.url.split(":")[2].split("/")[0])
        use(system, script, max_deliveries=2)
    async with system.shard("shard-0"):  # the server is gone
        written = await system.remember("I prefer green tea.", speaker="Ann")
        await until(lambda: facts(system))
        await asyncio.sleep(3.0)
        assert (await state(system, written["id"]))["details"]["extraction"] == "pending"
        async with scripted(reading, port=port):
            await reaches(system, written["id"], "done")


async def test_what_is_deleted_while_the_model_reads_it_leaves_nothing(system: System) -> None:
    def slow(body: dict[str, Any]) -> Answer:
        answer = reading(body)
        answer.delay_s = 1.0
        return answer

    await system.assign("shard-0")
    async with scripted(slow) as script:
        use(system, script)
        async with system.shard("shard-0"):
            first = await system.remember("I prefer green tea.")
            second = await system.remember("I prefer black tea.", user_id="bob")
            await until(lambda: asyncio.sleep(0, len(script.requests) == 2))
            assert (await system.api.delete(f"{MEMORIES}/{first['id']}")).status_code == 200
            assert (await system.api.delete(MEMORIES, params={"user_id": "bob"})).status_code == 200
            await asyncio.sleep(2.0)
            assert await facts(system) == []
            assert (await system.api.get(f"{MEMORIES}/{second['id']}")).status_code == 404
            answer = await system.api.get(MEMORIES, params={"user_id": "bob", "tier": "semantic"})
            assert answer.json()["items"] == []


async def test_what_is_changed_while_the_model_reads_it_is_read_again(system: System) -> None:
    def slow(body: dict[str, Any]) -> Answer:
        answer = reading(body)
        answer.delay_s = 1.0
        return answer

    await system.assign("shard-0")
    async with scripted(slow) as script:
        use(system, script)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", speaker="Ann")
            await until(lambda: asyncio.sleep(0, len(script.requests) == 1))
            changed = await system.api.patch(f"{MEMORIES}/{written['id']}", json={"content": "I prefer black tea."})
            assert changed.status_code == 200
            await reaches(system, written["id"], "done")
            assert [fact["content"] for fact in await facts(system)] == ["Ann said: I prefer black tea."]


async def test_another_shard_goes_on_where_one_stopped(system: System) -> None:
    def stuck(body: dict[str, Any]) -> Answer:
        answer = reading(body)
        answer.delay_s = 30.0
        return answer

    await system.assign("shard-0")
    async with scripted(stuck, reading) as script:
        use(system, script, timeout_s=60.0)
        async with system.shard("shard-0"):
            written = await system.remember("I prefer green tea.", speaker="Ann")
            await until(lambda: asyncio.sleep(0, len(script.requests) == 1))
        await system.assign("shard-1")
        async with system.shard("shard-1"):
            await reaches(system, written["id"], "done")


async def session(system: System) -> dict[str, Any]:
    answer = await system.api.get("/v1/agents/agent/sessions/s1", params={"user_id": "ann"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("model", [True, False])
async def test_what_leaves_a_session_stays_in_its_contexts(system: System, model: bool) -> None:
    await system.assign("shard-0")
    longer = system.settings.working.model_copy(update={"max_messages": 200, "summary_after": 5})
    system.settings = system.settings.model_copy(update={"working": longer})
    system.app.state.services.streams._working = longer.model_copy(update={"max_messages": 4})
    async with scripted(Answer("They agreed on the blue boat.")) as script:
        if model:
            use(system, script, classifier=None, summarizer=MODEL)
        async with system.shard("shard-0"):
            for number in range(10):
                await system.remember(f"We take the blue boat, number {number}.", session_id="s1", speaker="Ann")

            async def summarised() -> str | None:
                return (await session(system))["summary"]

            summary = await until(summarised)
            assert summary == "They agreed on the blue boat." if model else "blue boat" in summary
            body = {"query": "Which boat?", "user_id": "ann", "session_id": "s1", "window": 8000}
            context = (await system.api.post("/v1/agents/agent/context", json=body)).json()
            assert context["earlier"] == summary
            assert f"Earlier in this session:\n- {summary}" in context["messages"][0]["content"]
            assert context["tokens_used"] <= context["tokens_available"]
            narrow = await system.api.post("/v1/agents/agent/context", json=body | {"window": 4300})
            assert narrow.json()["tokens_used"] <= narrow.json()["tokens_available"]
            forgotten = await system.api.delete("/v1/agents/agent/memories", params={"user_id": "ann"})
            assert forgotten.status_code == 200
            assert (await session(system))["summary"] is None


async def test_writes_outlive_an_outage_of_the_served_embedder(system: System) -> None:
    """An outage uses up no attempts, however long it lasts."""

    def vectors(body: dict[str, Any]) -> Answer:
        if down:
            return Answer("down", status=503)
        rows = [{"index": at, "embedding": [1.0] + [0.0] * 383} for at, _ in enumerate(body["input"])]
        return Answer(raw=json.dumps({"data": rows}).encode())

    down = True
    await system.assign("shard-0")
    system.settings = system.settings.model_copy(
        update={"ingest": system.settings.ingest.model_copy(update={"max_attempts": 2, "retry_backoff_s": 0.05})}
    )
    async with scripted(vectors) as script:
        served = EmbeddingSettings(url=script.url, model=MODEL, dimension=384)
        system.embedder = open_embedder(served)
        async with system.shard("shard-0"):
            answer = await system.api.post(MEMORIES, json={"content": "I prefer green tea.", "user_id": "ann"})
            assert answer.status_code == 202
            await until(lambda: asyncio.sleep(0, len(script.requests) > 5))
            down = False
            ledger = await system.settled(1)
        await system.embedder.aclose()
    assert (ledger["stored"], ledger["dead_lettered"]) == (1, 0)
