"""The Python client: what it sends, what it repeats, and what it makes of answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from mnemoray import AsyncMnemoray, Fact, Mnemoray, NewMemory, RetryPolicy, errors
from mnemoray._retry import retry_after_s

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
ACCEPTED = {"id": ID, "operation_id": "3-x", "state": "pending", "added_by_a_newer_server": 1}
MEMORY = {
    "id": ID,
    "tier": "episodic",
    "agent_id": "a",
    "content": "c",
    "importance": 1,
    "created_at": "2026-01-01T00:00:00Z",
    "recorded_at": "2026-01-01T00:00:00Z",
    "revision": 1,
    "source_ids": [ID],
}
Answer = httpx.Response | Exception


class Server:
    """Answers in order, and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def problem(status: int, code: str = "x", **headers: str) -> httpx.Response:
    body = {"type": "urn:x", "title": "X", "status": status, "code": code, "detail": "why"}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def ok(body: object = ACCEPTED) -> httpx.Response:
    return httpx.Response(200, json=body)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("mnemoray._sync.transport.pause", waited.append)
    return waited


def client(server: Server, **policy: Any) -> Mnemoray:
    retry = RetryPolicy(jitter=lambda: 1.0, **policy)
    return Mnemoray("http://api/", "key", retry=retry, transport=httpx.MockTransport(server))


def add(memory: Mnemoray, **more: Any) -> Any:
    return memory.add("hello", agent_id="a", user_id="u", **more)


def test_add_sends_a_write_and_types_the_answer() -> None:
    server = Server(ok())
    found = add(client(server), facts=[Fact(fact="f")], occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert found.id == UUID(ID)
    (body,) = server.bodies
    assert body.pop("idempotency_key").startswith("client:")
    assert body["facts"] == [{"fact": "f", "confidence": 0.7, "scope": "user"}]
    assert body["occurred_at"] == "2026-01-01T00:00:00+00:00"
    assert "importance" not in body
    assert server.requests[0].headers["Authorization"] == "Bearer key"


def test_a_write_is_what_the_api_takes() -> None:
    from serve.schemas import MemoryWrite

    server = Server(ok())
    add(client(server), facts=[Fact(fact="f", valid_from=datetime(2026, 1, 1, tzinfo=UTC))], metadata={"a": None})
    assert MemoryWrite.model_validate(server.bodies[0]).metadata == {"a": None}


@pytest.mark.parametrize(
    "lost", [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("gone"), problem(503), problem(429), problem(502)]
)
def test_add_repeats_with_the_same_key(pauses: list[float], lost: Answer) -> None:
    server = Server(lost, ok())
    add(client(server))
    first, second = server.bodies
    assert first == second
    assert first["idempotency_key"]
    assert len(pauses) == 1


def test_two_adds_have_two_keys_and_a_given_key_is_kept() -> None:
    server = Server(ok(), ok(), ok())
    memory = client(server)
    add(memory)
    add(memory)
    add(memory, idempotency_key="mine")
    first, second, third = (body["idempotency_key"] for body in server.bodies)
    assert first != second
    assert third == "mine"


def test_every_item_of_a_batch_has_a_key() -> None:
    answer = {"items": [{"accepted": ACCEPTED}, {"problem": problem(422).json()}]}
    server = Server(ok(answer))
    items = client(server).add_batch(
        [NewMemory(content="a", user_id="u", idempotency_key="k"), NewMemory(content="b", user_id="u")], agent_id="a"
    )
    first, second = server.bodies[0]["items"]
    assert first["idempotency_key"] == "k"
    assert second["idempotency_key"].startswith("client:")
    assert items[0].accepted is not None
    assert items[1].problem is not None
    assert items[1].problem.detail == "why"


def test_waits_double_up_to_a_bound(pauses: list[float]) -> None:
    server = Server(*[problem(503)] * 5)
    with pytest.raises(errors.Unavailable) as caught:
        add(client(server, base_delay_s=1.0, max_delay_s=3.0))
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    assert (caught.value.status, caught.value.code, caught.value.detail) == (503, "x", "why")


def test_the_wait_is_at_least_what_the_server_asks(pauses: list[float]) -> None:
    add(client(Server(problem(429, Retry_After="7"), ok()), base_delay_s=0.5))
    assert pauses == [7.5]


def test_a_server_that_asks_for_too_long_is_not_asked_again(pauses: list[float]) -> None:
    with pytest.raises(errors.Backpressure) as caught:
        add(client(Server(problem(429, Retry_After="3600"))))
    assert caught.value.retry_after_s == 3600
    assert pauses == []


def test_jitter_is_full() -> None:
    error = errors.Unavailable(status=503, code="x", detail="")
    delays = [RetryPolicy(base_delay_s=1).delay_s(error, 1, repeatable=False) for _ in range(200)]
    assert all(delay is not None and 0 <= delay <= 1 for delay in delays)
    assert len(set(delays)) > 100


def test_retry_after_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    found = retry_after_s(soon)
    assert found is not None
    assert 28 <= found <= 30
    assert retry_after_s("soon") is None
    assert retry_after_s(None) is None


def test_attempts_are_bounded_at_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RetryPolicy(max_attempts=0)
    server = Server(problem(503))
    with pytest.raises(errors.Unavailable):
        add(client(server, max_attempts=1))


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 500])
def test_refusals_are_not_repeated(status: int) -> None:
    server = Server(problem(status))
    with pytest.raises(errors.ApiError) as caught:
        add(client(server))
    assert type(caught.value) is errors.class_of(status)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.record_outcome("s", "success", agent_id="a"),
        lambda memory: memory.delete(ID, agent_id="a"),
        lambda memory: memory.replay(ID),
        lambda memory: memory.release(ID, agent_id="a"),
    ],
)
def test_what_cannot_be_sent_twice_is_not(pauses: list[float], call: Callable[[Mnemoray], Any]) -> None:
    server = Server(httpx.ReadTimeout("slow"))
    with pytest.raises(errors.ConnectionFailed, match="may have been carried out") as caught:
        call(client(server))
    assert caught.value.sent
    server = Server(httpx.ConnectError("refused"), problem(404))
    with pytest.raises(errors.NotFound):
        call(client(server))
    assert len(pauses) == 1


def test_no_connection_says_where_it_was_looked_for(pauses: list[float]) -> None:
    with pytest.raises(errors.ConnectionFailed, match="cannot reach http://api") as caught:
        add(client(Server(*[httpx.ConnectError("refused")] * 5)))
    assert not caught.value.sent
    assert len(pauses) == 4


@pytest.mark.parametrize(
    "answer", [httpx.Response(200, text="<html>"), ok([]), ok({"id": ID}), ok({**ACCEPTED, "id": 3})]
)
def test_other_answers_are_named(answer: httpx.Response) -> None:
    with pytest.raises(errors.UnexpectedAnswer):
        add(client(Server(answer)))


def test_a_problem_without_a_body_still_has_a_class() -> None:
    with pytest.raises(errors.ServerError, match="500 http_error"):
        add(client(Server(httpx.Response(500, text="oops"))))


@pytest.mark.parametrize(
    ("agent_id", "expected"),
    [("a/b c%", "a%2Fb%20c%25"), ("..", "%2E%2E"), (".", "%2E"), ("a.b", "a.b"), ("é?#", "%C3%A9%3F%23")],
)
def test_ids_stay_one_segment(agent_id: str, expected: str) -> None:
    server = Server(ok(MEMORY))
    client(server).get(ID, agent_id=agent_id)
    assert server.requests[0].url.raw_path.decode() == f"/v1/agents/{expected}/memories/{ID}"


def test_get_all_follows_cursors() -> None:
    server = Server(ok({"items": [MEMORY, MEMORY], "next_cursor": "n+1"}), ok({"items": [MEMORY], "next_cursor": None}))
    found = list(client(server).get_all(agent_id="a", user_id="u", page_size=2))
    assert len(found) == 3
    assert found[0].source_ids == [UUID(ID)]
    assert found[0].created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert dict(server.requests[0].url.params) == {"user_id": "u", "limit": "2"}
    assert dict(server.requests[1].url.params) == {"user_id": "u", "limit": "2", "cursor": "n+1"}


def test_trust_is_sent_when_it_is_given() -> None:
    server = Server(ok(), ok())
    memory = client(server)
    add(memory)
    add(memory, trust="external")
    assert [body.get("trust") for body in server.bodies] == [None, "external"]


def test_quarantine_is_listed_page_by_page_and_released() -> None:
    server = Server(ok({"items": [MEMORY], "next_cursor": "n"}), ok({"items": [MEMORY]}), ok(MEMORY))
    memory = client(server)
    held = list(memory.quarantine(agent_id="a", user_id="u", page_size=1))
    assert memory.release(held[0].id, agent_id="a").content == "c"
    assert [request.url.path for request in server.requests[1:]] == [
        "/v1/agents/a/quarantine",
        f"/v1/agents/a/quarantine/{ID}/release",
    ]
    assert dict(server.requests[1].url.params) == {"user_id": "u", "limit": "1", "cursor": "n"}


def test_results_are_nested_and_frozen() -> None:
    score = dict.fromkeys(["relevance", "recency", "importance", "frequency", "type_bonus", "total"], 0.5)
    server = Server(ok({"hits": [{"memory": MEMORY, "score": score}], "revision": 4}))
    (hit,) = client(server).search("q", agent_id="a", user_id="u", weights={"recency": 0.1}, tiers=["episodic"]).hits
    assert hit.score.total == 0.5
    with pytest.raises(AttributeError):
        hit.memory.content = "other"
    assert server.bodies == [{"query": "q", "user_id": "u", "tiers": ["episodic"], "weights": {"recency": 0.1}}]


def test_history_and_sessions() -> None:
    event = {"event": "created", "revision": 1, "at": "2026-01-01T00:00:00Z", "after": {"content": "c"}}
    session = {"messages": [], "variables": {"x": None}, "spilled": 0}
    memory = client(Server(ok([event]), ok(session), ok(session), ok({"deleted": 1})))
    assert memory.history(ID, agent_id="a")[0].after == {"content": "c"}
    assert memory.set_variables("s", {"x": None}, agent_id="a", user_id="u").variables == {"x": None}
    assert memory.set_reasoning("s", None, agent_id="a", user_id="u").reasoning is None
    assert memory.end_session("s", agent_id="a", user_id="u").deleted == 1


def operation(state: str) -> httpx.Response:
    return ok({"operation_id": "3-x", "id": ID, "state": state})


def test_wait_until_settled() -> None:
    memory = client(Server(ok(), operation("pending"), operation("stored")))
    assert memory.wait_until_settled(add(memory), poll_s=0.001).state == "stored"
    with pytest.raises(errors.NotSettled, match="still pending"):
        client(Server(operation("pending"))).wait_until_settled("3-x", timeout_s=0)


def test_configuration_is_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MNEMORAY_URL", "MNEMORAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.NotConfigured, match="MNEMORAY_URL"):
        Mnemoray()
    with pytest.raises(errors.NotConfigured, match="begin with http"):
        Mnemoray("localhost:8787")
    with pytest.raises(errors.NotConfigured, match="MNEMORAY_API_KEY"):
        Mnemoray("http://api")
    monkeypatch.setenv("MNEMORAY_URL", "http://api")
    monkeypatch.setenv("MNEMORAY_API_KEY", "key")
    with Mnemoray():
        pass


async def test_the_asynchronous_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_pause(_: float) -> None:
        return None

    monkeypatch.setattr("mnemoray._async.transport.pause", no_pause)
    server = Server(problem(503, Retry_After="1"), ok(), ok({"items": [MEMORY]}), ok({"items": []}))
    async with AsyncMnemoray("http://api", "key", transport=httpx.MockTransport(server)) as memory:
        await memory.add("hello", agent_id="a", user_id="u")
        assert [found.content async for found in memory.get_all(agent_id="a")] == ["c"]
        assert [letter async for letter in memory.dead_letters()] == []
    assert len(server.requests) == 4


def test_both_clients_have_the_same_verbs() -> None:
    def verbs(kind: type) -> Sequence[str]:
        return sorted(name.replace("aclose", "close") for name in dir(kind) if not name.startswith("_"))

    assert verbs(AsyncMnemoray) == verbs(Mnemoray)


def test_results_know_every_field_of_the_api() -> None:
    from dataclasses import fields

    from mnemoray import results

    from serve import schemas

    pairs = {
        "Accepted": "Accepted", "MemoryOut": "Memory", "MemoryPage": "MemoryPage", "HistoryEvent": "HistoryEvent",
        "ScoreOut": "Score", "HitOut": "Hit", "SearchOut": "SearchResult", "ContextItem": "ContextItem",
        "TierUsageOut": "TierUsage", "ContextOut": "Context", "SkillOut": "Skill", "SessionOut": "Session",
        "WorkingMessageOut": "WorkingMessage", "AgentOut": "Agent", "OperationOut": "Operation", "LedgerOut": "Ledger",
        "DeadLetterOut": "DeadLetter", "DeadLetterPage": "DeadLetterPage", "Deleted": "Deleted", "Problem": "Problem",
    }  # fmt: skip
    for schema, result in pairs.items():
        known = {field.name for field in fields(getattr(results, result))}
        assert known == set(getattr(schemas, schema).model_fields), schema


def test_the_synchronous_twin_is_current() -> None:
    pytest.importorskip("tokenize_rt", reason="the generator needs unasync, from the dev extra")
    script = Path(__file__).parents[2] / "client" / "generate_sync.py"
    found = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
