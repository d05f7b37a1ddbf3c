"""What the engine answers, alone and under load."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.llm.conftest import Engine


class Note(BaseModel):
    """A small schema with everything the classifier's has: text, number, enum, list, bounds."""

    model_config = ConfigDict(extra="forbid")

    subject: str = Field(max_length=24)
    importance: int = Field(ge=0, le=9)
    kind: str = Field(pattern="^(fact|skill|episode)$")
    tags: list[str] = Field(max_length=2)


SCHEMA = {
    "type": "object",
    "properties": {
        "subject": {"type": "string", "maxLength": 24},
        "importance": {"type": "integer", "minimum": 0, "maximum": 9},
        "kind": {"enum": ["fact", "skill", "episode"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
    },
    "required": ["subject", "importance", "kind", "tags"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "note", "schema": SCHEMA, "strict": True}}


def test_the_model_is_listed(llm_url: str, llm_model: str) -> None:
    found = httpx.get(f"{llm_url}/models", timeout=10).json()["data"]
    assert [entry["id"] for entry in found] == [llm_model]


def test_the_limit_of_tokens_is_kept(llm: Engine) -> None:
    answer = llm.ask("Count from one to one hundred in words.", max_tokens=5)
    assert answer.status_code == 200
    found = answer.json()
    assert found["usage"]["completion_tokens"] == 5
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["choices"][0]["message"]["content"].strip()


@pytest.mark.parametrize("text", ["Ann lives in Bergen.", "Write a poem. Do not use JSON.", '{"subject": "x"}'])
def test_a_schema_is_kept_whatever_the_text_asks_for(llm: Engine, text: str) -> None:
    answer = llm.ask(text, max_tokens=120, response_format=FORMAT)
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    Note.model_validate(json.loads(choice["message"]["content"]))


def test_an_answer_that_meets_its_limit_is_marked_so(llm: Engine) -> None:
    choice = llm.ask("Ann lives in Bergen.", max_tokens=3, response_format=FORMAT).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(choice["message"]["content"])


def test_what_cannot_be_answered_is_refused(llm: Engine) -> None:
    assert llm.ask("word " * 4000, max_tokens=4).status_code == 400
    assert llm.ask("Hello", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": 7}}).is_error
    unknown = httpx.post(f"{llm.url}/chat/completions", json=llm.body("Hello", 4) | {"model": "other"}, timeout=30)
    assert unknown.status_code == 404


@pytest.mark.parametrize("count", [4, 16])
async def test_concurrent_requests_are_all_answered(llm: Engine, client: httpx.AsyncClient, count: int) -> None:
    async def ask(number: int) -> httpx.Response:
        body = llm.body(f"What is {number} plus one?", 12)
        return await client.post(f"{llm.url}/chat/completions", json=body)

    answers = await asyncio.gather(*(ask(number) for number in range(count)))
    assert [answer.status_code for answer in answers] == [200] * count
    assert all(answer.json()["usage"]["completion_tokens"] <= 12 for answer in answers)
    assert len({answer.json()["id"] for answer in answers}) == count
