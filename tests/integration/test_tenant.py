"""A search over all agents of a tenant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import System, contents

ADMIN = {"Authorization": "Bearer admin-a"}
SEARCH = "/v1/memories/search"


async def ask(system: System, query: str, **body: Any) -> list[dict[str, Any]]:
    response = await system.api.post(SEARCH, json={"query": query} | body, headers=ADMIN)
    assert response.status_code == 200, response.text
    hits: list[dict[str, Any]] = response.json()["hits"]
    return hits


async def test_it_finds_the_memories_of_every_agent_and_of_no_other_tenant(running: System) -> None:
    for agent, user, pie in (("one", "ann", "heron"), ("two", "bob", "apple"), ("three", "cat", "plum")):
        await running.remember(f"The {pie} pie was good.", agent=agent, user_id=user, infer=False)
    body = {"content": "The secret pie was good.", "user_id": "ann", "wait": "persistent"}
    assert (await running.other.post("/v1/agents/one/memories", json=body)).status_code == 201
    found = await ask(running, "pie")
    assert {hit["memory"]["agent_id"] for hit in found} == {"one", "two", "three"}
    assert "The secret pie was good." not in contents(found)
    assert contents(await ask(running, "apple pie", agents=["two"])) == ["The apple pie was good."]
    assert contents(await ask(running, "plum pie", top_k=1)) == ["The plum pie was good."]


async def test_two_users_who_say_the_same_are_two_hits(running: System) -> None:
    for user in ("ann", "bob"):
        await running.remember("noted", user_id=user, facts=[{"fact": "The shop closes at nine"}])
    found = await ask(running, "shop", tiers=["semantic"])
    assert contents(found) == ["The shop closes at nine"] * 2


async def test_what_was_deleted_is_not_found(running: System) -> None:
    stored = await running.remember("The heron pie was good.", infer=False)
    assert len(await ask(running, "pie")) == 1
    await running.api.delete(f"/v1/agents/agent/memories/{stored['id']}")
    assert await ask(running, "pie") == []


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [({"Authorization": "Bearer key-a"}, 403, "forbidden"), ({"Authorization": "Bearer no"}, 401, "unauthorized")],
)
async def test_it_needs_an_administrators_key(system: System, headers: dict[str, str], status: int, code: str) -> None:
    response = await system.api.post(SEARCH, json={"query": "pie"}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_an_administrators_key_is_an_api_key_too(system: System) -> None:
    response = await system.api.get("/v1/agents/agent/memories", headers=ADMIN)
    assert response.status_code == 200


@pytest.mark.parametrize("body", [{"tiers": ["working"]}, {"agents": []}, {"user_id": "ann"}, {"query": " "}])
async def test_bad_input_is_refused(system: System, body: dict[str, Any]) -> None:
    response = await system.api.post(SEARCH, json={"query": "pie"} | body, headers=ADMIN)
    assert response.status_code == 422
