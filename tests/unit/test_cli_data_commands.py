"""The commands that read and write memories, against an API that is played here."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import typer
from typer.testing import CliRunner, Result

from cluster.commands import context, dead_letters, import_file, recall, remember
from cluster.exit_codes import ExitCode
from serve.schemas import BatchWrite, ContextIn, MemoryWrite, SearchIn

AT = ["--url", "http://api", "--key", "key"]
WHO = ["--agent", "concierge", "--user", "ada"]
MEMORY = {"tier": "episodic", "created_at": "2026-01-01T00:00:00Z", "speaker": "Ada", "content": "I like [tea]"}
Handler = Callable[[httpx.Request], httpx.Response]

app = typer.Typer()
app.command("import")(import_file.import_file)
app.command()(remember.remember)
app.command()(recall.recall)
app.command()(context.context)
app.add_typer(dead_letters.app, name="dead-letters")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], list[float]]:
    """Lets a function answer; returns the waits that the commands would have made."""
    for name in ("MNEMORAY_URL", "MNEMORAY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    build = httpx.Client

    def _play(handler: Handler) -> list[float]:
        waited: list[float] = []
        transport = httpx.MockTransport(handler)
        monkeypatch.setattr("cluster.api.httpx.Client", lambda **given: build(**{**given, "transport": transport}))
        monkeypatch.setattr("cluster.api.wait", waited.append)
        monkeypatch.setattr("cluster.importing.wait", waited.append)
        return waited

    return _play


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


class Fake:
    """Accepts batches, and settles every write as its content says."""

    def __init__(self, *, partial: bool = False, first: httpx.Response | None = None) -> None:
        self.operations: dict[str, dict[str, Any]] = {}
        self.by_key: dict[str, str] = {}
        self.batches: list[int] = []
        self.first = first
        self.partial = partial  # the partition takes one item at a time

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer key"
        if self.first is not None:
            answer, self.first = self.first, None
            return answer
        if request.method == "GET":
            return httpx.Response(200, json=self.operations[request.url.path.rsplit("/", 1)[1]])
        body = BatchWrite.model_validate_json(request.content)
        self.batches.append(len(body.items))
        return httpx.Response(202, json={"items": [self.item(index, item) for index, item in enumerate(body.items)]})

    def item(self, index: int, item: Any) -> dict[str, Any]:
        if self.partial and index:
            return {"problem": {"status": 429, "code": "backpressure", "detail": "full"}}
        if item.content == "conflict":
            return {"problem": {"status": 409, "code": "conflict", "detail": "other options"}}
        if item.content == "refuse":
            return {"problem": {"status": 422, "code": "invalid_input", "detail": "not this"}}
        duplicate = item.idempotency_key in self.by_key
        name = self.by_key.setdefault(item.idempotency_key, str(uuid4()))
        states = {"reject": "rejected", "dead": "dead_lettered", "wait": "pending"}
        self.operations[name] = {"state": states.get(item.content, "stored"), "reason": "because"}
        return {"accepted": {"operation_id": name, "state": "pending", "duplicate": duplicate}}


def lines(tmp_path: Path, *contents: str) -> str:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"role": "user", "content": content}) + "\n" for content in contents))
    return str(file)


def test_import_reports_how_every_item_ended(api: Any, tmp_path: Path) -> None:
    fake = Fake()
    api(fake)
    file = lines(tmp_path, "fine", "reject", "dead", "refuse", "", "wait", "conflict")
    result = run("import", file, *WHO, *AT, "--json", "--wait", "0")
    assert result.exit_code == ExitCode.PARTIAL
    found = json.loads(result.stdout)
    counts = {state: found[state] for state in import_file.STATES}
    assert counts == {
        "stored": 1,
        "duplicate": 1,
        "rejected": 1,
        "dead_lettered": 1,
        "refused": 1,
        "pending": 1,
        "skipped": 1,
    }
    assert {"place": f"{file}:2", "state": "rejected", "reason": "because"}.items() <= found["failures"][1].items()


def test_importing_again_stores_nothing_twice(api: Any, tmp_path: Path) -> None:
    fake = Fake()
    api(fake)
    file = lines(tmp_path, *[f"message {n}" for n in range(250)])
    first, second = run("import", file, *WHO, *AT), run("import", file, *WHO, *AT)
    assert (first.exit_code, second.exit_code) == (ExitCode.OK, ExitCode.OK)
    assert "250 stored" in first.stdout
    assert "0 stored, 250 duplicate" in second.stdout
    assert fake.batches == [100, 100, 50] * 2
    assert len(fake.by_key) == 250


def test_import_waits_when_it_is_told_to(api: Any, tmp_path: Path) -> None:
    waited = api(Fake(first=httpx.Response(429, headers={"Retry-After": "7"}, json={"detail": "full"})))
    assert run("import", lines(tmp_path, "a"), *WHO, *AT).exit_code == ExitCode.OK
    assert waited == [7.0]


def test_items_that_a_full_partition_refused_are_sent_again(api: Any, tmp_path: Path) -> None:
    fake = Fake(partial=True)
    waited = api(fake)
    result = run("import", lines(tmp_path, "a", "b", "c"), *WHO, *AT)
    assert "3 stored" in result.stdout
    assert fake.batches == [3, 2, 1]
    assert waited == [1.0, 1.0]


def test_nothing_is_sent_from_a_file_with_an_error(api: Any, tmp_path: Path) -> None:
    fake = Fake()
    api(fake)
    result = run("import", lines(tmp_path, "fine", "nul \x00"), *WHO, *AT)
    assert result.exit_code == ExitCode.FAILED
    assert "log.jsonl:2: content:" in result.stderr.replace("\n", "")
    assert fake.batches == []


def test_recall_prints_a_table(api: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        body = SearchIn.model_validate_json(request.content)
        assert (request.url.raw_path, body.top_k) == (b"/v1/agents/con%2Fcierge/memories/search", 3)
        return httpx.Response(200, json={"hits": [{"memory": MEMORY, "score": {"total": 0.5}}], "revision": 1})

    api(answer)
    result = run("recall", "what?", "--agent", "con/cierge", "--user", "ada", "-k", "3", *AT)
    assert result.exit_code == ExitCode.OK
    assert "I like [tea]" in result.stdout
    assert "0.500" in result.stdout


def test_context_prints_messages_and_usage(api: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        ContextIn.model_validate_json(request.content)
        found = {"messages": [{"role": "system", "content": "You know: [tea]"}], "tokens_used": 7, "items": []}
        usage = {"episodic": {"allocated": 5, "used": 3, "dropped": 0}}
        return httpx.Response(200, json={**found, "tokens_available": 90, "dropped": 0, "tiers": usage})

    api(answer)
    result = run("context", "what?", *WHO, *AT)
    assert "[system]\nYou know: [tea]\n" in result.stdout
    assert "7 of 90 tokens used" in result.stderr
    assert json.loads(run("context", "what?", *WHO, *AT, "--json").stdout)["tokens_used"] == 7


@pytest.mark.parametrize(("state", "code"), [("stored", ExitCode.OK), ("rejected", ExitCode.FAILED)])
def test_remember(api: Any, state: str, code: ExitCode) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert MemoryWrite.model_validate_json(request.content).wait == "persistent"
        return httpx.Response(201, json={"id": "i", "operation_id": "o", "state": state, "reason": "why"})

    api(answer)
    result = run("remember", "tea", *WHO, *AT)
    assert result.exit_code == code
    assert result.stdout == f"{state}  i: why\n"


def test_the_channel_is_said(api: Any, tmp_path: Path) -> None:
    sent: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(201, json={"id": "i", "operation_id": "o", "state": "stored"})

    api(answer)
    assert run("remember", "tea", *WHO, *AT, "--trust", "external").exit_code == ExitCode.OK
    assert sent[0]["trust"] == "external"
    assert run("remember", "tea", *WHO, *AT, "--trust", "root").exit_code == ExitCode.USAGE


def test_dead_letters(api: Any) -> None:
    here, gone = uuid4(), uuid4()
    item = {"id": str(here), "agent_id": "a", "attempts": 5, "error": "bad", "content": "c", "failed_at": "2026-01-01"}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            more = "cursor" not in request.url.params
            return httpx.Response(200, json={"items": [item], "next_cursor": "n" if more else None})
        if str(gone) in request.url.path:
            return httpx.Response(404, json={"detail": "no dead letter"})
        return httpx.Response(200, json={"state": "pending"})

    api(answer)
    assert run("dead-letters", "list", *AT).stdout.count(str(here)) == 2
    assert len(json.loads(run("dead-letters", "list", *AT, "--json", "--limit", "1").stdout)) == 1
    assert run("dead-letters", "replay", str(here), *AT).stdout == "replayed 1\n"
    assert run("dead-letters", "drop", "--all", *AT).stdout == "dropped 2\n"
    assert run("dead-letters", "drop", str(here), str(gone), *AT).exit_code == ExitCode.PARTIAL
    assert run("dead-letters", "drop", str(gone), *AT).exit_code == ExitCode.NOT_FOUND
    assert run("dead-letters", "drop", *AT).exit_code == ExitCode.FAILED


def test_a_refused_connection_says_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    result = run("recall", "what?", *WHO, "--url", url, "--key", "key")
    assert result.exit_code == ExitCode.UNAVAILABLE
    assert f"no answer from {url}" in result.stderr
    assert "mnemoray up" in result.stderr


def test_the_running_instance_is_found(api: Any, tmp_path: Path) -> None:
    data = ["--data-dir", str(tmp_path)]
    result = run("recall", "what?", *WHO, *data)
    assert result.exit_code == ExitCode.UNAVAILABLE
    assert "mnemoray up" in result.stderr
    (tmp_path / "run").mkdir()
    (tmp_path / "key").write_text("key\n")
    recorded = {"url": "http://api", "key_file": str(tmp_path / "key")}
    (tmp_path / "run" / "endpoint.json").write_text(json.dumps(recorded))

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer key"
        return httpx.Response(200, json={"hits": [], "revision": 0})

    api(answer)
    assert run("recall", "what?", *WHO, *data).exit_code == ExitCode.OK
    elsewhere = run("recall", "what?", *WHO, *data, "--url", "http://elsewhere")
    assert "no API key for http://elsewhere" in elsewhere.stderr


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, ExitCode.UNAVAILABLE, "--key"),
        (404, ExitCode.NOT_FOUND, "why"),
        (422, ExitCode.FAILED, "why"),
        (429, ExitCode.FAILED, "try again later"),
        (500, ExitCode.FAILED, "why"),
        (503, ExitCode.UNAVAILABLE, "not available"),
    ],
)
def test_problems_have_an_exit_code(api: Any, status: int, code: ExitCode, said: str) -> None:
    api(lambda _: httpx.Response(status, json={"detail": "why"}))
    result = run("recall", "what?", *WHO, *AT)
    assert result.exit_code == code
    assert said in result.stderr
