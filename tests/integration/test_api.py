"""The API's promises: isolation, bad input, sessions, skills, contexts."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from tests.integration.conftest import System, contents

MEMORIES = "/v1/agents/agent/memories"
STRANGE_IDS = ["名前", "a:b%_\\", "a/b", "ünï 🦩", "100%", "%2F", "x" * 64, "..a", "a'b\"c", "{p1}"]


async def test_nothing_crosses_tenants_agents_or_users(running: System) -> None:
    stored = await running.remember("The vault code is 4711.", session_id="s")
    for client, agent, user in (
        (running.other, "agent", "ann"),
        (running.api, "agent2", "ann"),
        (running.api, "agen_", "ann"),
        (running.api, "agent", "an%"),
        (running.api, "agent", "ANN"),
    ):
        body = {"query": "vault code", "user_id": user, "session_id": "s"}
        assert (await client.post(f"/v1/agents/{quote(agent)}/memories/search", json=body)).json()["hits"] == []
        if (client, agent) != (running.api, "agent"):
            path = f"/v1/agents/{quote(agent)}/memories/{stored['id']}"
            assert (await client.get(path)).status_code == 404
            assert (await client.delete(path)).status_code == 404
            assert (await client.patch(path, json={"importance": 1.0})).status_code == 404
    assert (await running.other.get(f"/v1/operations/{stored['operation_id']}")).status_code == 404
    assert (await running.other.get("/v1/ledger")).json()["accepted"] == 0
    assert "The vault code is 4711." in contents(await running.search("vault code"))


@pytest.mark.parametrize("name", STRANGE_IDS)
async def test_any_printable_id_works_everywhere(running: System, name: str) -> None:
    base = f"/v1/agents/{quote(name, safe='')}"
    body = {"content": "hello there", "user_id": name, "session_id": name, "wait": "persistent"}
    stored = await running.api.post(f"{base}/memories", json=body)
    assert stored.status_code == 201, stored.text
    session = await running.api.get(f"{base}/sessions/{quote(name, safe='')}", params={"user_id": name})
    assert len(session.json()["messages"]) == 1
    hits = await running.api.post(f"{base}/memories/search", json={"query": "hello", "user_id": name})
    assert hits.json()["hits"][0]["memory"]["agent_id"] == name
    assert (await running.api.delete(f"{base}/memories/{stored.json()['id']}")).status_code == 200


BAD_WRITES: list[dict[str, Any]] = [
    {},
    {"content": "x"},
    {"content": "", "user_id": "ann"},
    {"content": " \t\n ", "user_id": "ann"},
    {"content": "nul \x00", "user_id": "ann"},
    {"content": "x", "user_id": "u" * 65},
    {"content": "x", "user_id": "a\nb"},
    {"content": "x" * 65_537, "user_id": "ann"},
    {"content": 5, "user_id": "ann"},
    {"content": "x", "user_id": "ann", "importance": 1.5},
    {"content": "x", "user_id": "ann", "importance": "high"},
    {"content": "x", "user_id": "ann", "colour": "red"},
    {"content": "x", "user_id": "ann", "event_type": "dream"},
    {"content": "x", "user_id": "ann", "metadata": {"a": "nul \x00"}},
    {"content": "x", "user_id": "ann", "metadata": []},
    {"content": "x", "user_id": "ann", "occurred_at": 5},
    {"content": "x", "user_id": "ann", "occurred_at": "yesterday"},
    {"content": "x", "user_id": "ann", "wait": "forever"},
]


@pytest.mark.parametrize("body", BAD_WRITES)
async def test_bad_writes_are_refused_with_reasons_and_change_nothing(system: System, body: dict[str, Any]) -> None:
    answer = await system.api.post(MEMORIES, json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "invalid_input"
    assert answer.json()["errors"]
    assert (await system.api.get("/v1/ledger")).json()["accepted"] == 0


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content": "\\ud800", "user_id": "ann"}',
        b'{"content": "x", "user_id": "ann", "importance": NaN}',
        b'{"content": "x", "user_id": "ann", "metadata": {"a": Infinity}}',
        b'{"content": "x", "user_id": "ann", "metadata": {"\\udfff": 1}}',
        b'{"content": "x", "user_id": ',
        b"\xff\xfe",
        b"[]",
        b"",
    ],
)
async def test_bodies_that_are_not_valid_json_are_refused(system: System, raw: bytes) -> None:
    answer = await system.api.post(MEMORIES, content=raw, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await system.api.get("/v1/ledger")).json()["accepted"] == 0


@pytest.mark.parametrize("k", [0, -1, 201, "many", 2.5])
async def test_strange_limits_are_refused(system: System, k: object) -> None:
    body = {"query": "x", "user_id": "ann", "top_k": k}
    assert (await system.api.post(f"{MEMORIES}/search", json=body)).status_code == 422


async def test_requests_without_a_known_key_are_refused(system: System) -> None:
    for headers in ({"Authorization": "Bearer nobody"}, {"Authorization": ""}, {"Authorization": "Basic x"}):
        answer = await system.api.get("/v1/ledger", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_a_body_that_is_too_large_is_refused(system: System) -> None:
    answer = await system.api.post(MEMORIES, content=b"x" * (system.settings.serve.max_body_bytes + 1))
    assert answer.status_code == 413
    assert answer.json()["code"] == "body_too_large"


async def test_sessions_keep_variables_and_reasoning_and_end(running: System) -> None:
    base, user = "/v1/agents/agent/sessions/s", {"user_id": "ann"}
    await running.api.patch(f"{base}/variables", params=user, json={"variables": {"city": "Oslo", "n": [1, None]}})
    await running.api.put(f"{base}/reasoning", params=user, json={"reasoning": {"step": 2}})
    session = (await running.api.get(base, params=user)).json()
    assert session["variables"] == {"city": "Oslo", "n": [1, None]}
    assert session["reasoning"] == {"step": 2}
    assert (await running.api.delete(f"{base}/variables/city", params=user)).status_code == 200
    assert (await running.api.delete(f"{base}/variables/city", params=user)).status_code == 404
    assert (await running.api.get(base, params={"user_id": "bob"})).json()["variables"] == {}
    assert (await running.api.delete(base, params=user)).status_code == 200
    assert (await running.api.delete(base, params=user)).status_code == 404


async def test_a_session_is_bounded_and_what_it_spills_is_still_an_episode(running: System) -> None:
    limit = running.settings.working.max_messages
    items = [{"content": f"line {number}", "user_id": "ann", "session_id": "s"} for number in range(limit + 5)]
    await running.api.post(f"{MEMORIES}/batch", json={"items": items})
    await running.settled(limit + 5)
    session = (await running.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).json()
    assert len(session["messages"]) == limit
    assert session["spilled"] == 5
    assert session["messages"][-1]["content"] == f"line {limit + 4}"
    page = (await running.api.get(MEMORIES, params={"limit": 500})).json()
    assert len(page["items"]) == limit + 5


async def test_concurrent_outcomes_of_a_skill_are_all_counted(running: System) -> None:
    skill = "/v1/agents/agent/skills/deploy"
    body = {"trigger_pattern": "deploy the service", "policy": {"steps": ["build", "push"]}}
    assert (await running.api.put(skill, json=body)).json()["version"] == 1
    outcomes = [{"outcome": "success" if n % 4 else "failure", "reward": float(n)} for n in range(40)]
    await asyncio.gather(*(running.api.post(f"{skill}/outcomes", json=outcome) for outcome in outcomes))
    found = (await running.api.get(skill)).json()
    assert (found["success_count"], found["failure_count"]) == (30, 10)
    assert found["avg_reward"] == pytest.approx(sum(range(40)) / 40, rel=1e-4)
    listed = (await running.api.get("/v1/agents/agent/skills")).json()["items"]
    assert listed[0]["success_count"] == 30, "the cache of hot skills is stale"
    assert (await running.api.put(skill, json=body)).json()["version"] == 1
    assert (await running.api.put(skill, json=body | {"policy": {"steps": []}})).json()["version"] == 2


async def test_a_context_fits_its_budget_and_is_ready_to_send(running: System) -> None:
    for number in range(12):
        await running.remember(
            f"Fact number {number}: the heron eats fish. " * 6, session_id="s" if number < 6 else "t"
        )
    body = {
        "query": "What does the heron eat?",
        "user_id": "ann",
        "session_id": "s",
        "window": 700,
        "output_reserve": 100,
        "system_prompt": "You are helpful.",
    }
    context = (await running.api.post("/v1/agents/agent/context", json=body)).json()
    assert 0 < context["tokens_used"] <= context["tokens_available"] < 600
    assert context["items"]
    assert context["dropped"] > 0
    tiers = [item["memory"]["tier"] for item in context["items"]]
    assert tiers == sorted(tiers, key=lambda tier: tier != "working")
    assert context["messages"][0]["role"] == "system"
    assert context["messages"][-1] == {"role": "user", "content": "What does the heron eat?"}
    count = running.app.state.services.tokens.count
    spent = sum(count(message["content"]) for message in context["messages"])
    assert spent + 100 <= 700


async def test_agents_have_their_own_weights_and_budgets(running: System) -> None:
    await running.remember("The heron eats fish.")
    put = await running.api.put("/v1/agents/agent", json={"scoring": {"relevance": 1.0, "recency": 0.0}})
    assert put.json()["scoring"] == {"relevance": 1.0, "recency": 0.0}
    (hit,) = await running.search("heron")
    parts = hit["score"]
    expected = parts["relevance"] + 0.2 * parts["importance"] + 0.1 * parts["frequency"] + 0.15 * parts["type_bonus"]
    assert parts["total"] == pytest.approx(expected)
    refused = await running.api.put("/v1/agents/agent", json={"budget_ratios": {"working": 0.9, "semantic": 0.9}})
    assert refused.status_code == 422


async def test_pages_are_complete_and_do_not_overlap(running: System) -> None:
    items = [{"content": f"note {number}", "user_id": "ann", "infer": False} for number in range(25)]
    await running.api.post(f"{MEMORIES}/batch", json={"items": items})
    await running.settled(25)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": 10} | ({"cursor": cursor} if cursor else {})
        page = (await running.api.get(MEMORIES, params=params)).json()
        seen += [item["content"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(f"note {number}" for number in range(25))
    assert (await running.api.get(MEMORIES, params={"cursor": "garbage"})).status_code == 422


async def test_access_is_counted_after_the_read(running: System) -> None:
    stored = await running.remember("The heron eats fish.", infer=False)
    for _ in range(3):
        await running.search("heron")
    await running.app.state.services.access._flush()
    memory = (await running.api.get(f"{MEMORIES}/{stored['id']}")).json()
    assert memory["access_count"] == 3
    assert memory["last_accessed_at"] is not None


async def test_secrets_are_redacted_before_anything_is_stored(running: System) -> None:
    secret = "ghp_" + "a1B2" * 9
    stored = await running.remember(f"my token is {secret} ok", session_id="s", metadata={"note": secret})
    memory = (await running.api.get(f"{MEMORIES}/{stored['id']}")).text
    session = (await running.api.get("/v1/agents/agent/sessions/s", params={"user_id": "ann"})).text
    assert secret not in memory
    assert secret not in session
    assert "[REDACTED:github_token]" in memory


async def test_health_and_metrics_need_no_key(system: System) -> None:
    anonymous = {"Authorization": ""}
    assert (await system.api.get("/health/live", headers=anonymous)).json() == {"status": "live"}
    assert (await system.api.get("/health/ready", headers=anonymous)).status_code == 200
    metrics = await system.api.get("/metrics", headers=anonymous)
    assert "mnemoray_ingest_pending" in metrics.text
