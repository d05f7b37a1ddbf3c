"""Classifier and summarizer on a real engine. The model is too small to judge its words; the machinery is judged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from configs.settings import ModelSettings
from memory import extraction
from memory.errors import InvalidOutput
from memory.extractive import ExtractiveSummarizer
from memory.rules import RuleClassifier
from stores.models.chat import ChatModel
from stores.models.classifier import ModelClassifier
from stores.models.prompts import load_prompt
from stores.models.summarizer import ModelSummarizer
from stores.models.tokens import BpeCounter
from tests.builders import interaction

COUNTER = BpeCounter()
NOTES = "Ann moved to Berlin in 2021. She works as a nurse. She prefers tea over coffee. The weather was nice. " * 4


@pytest.fixture
def models(llm_url: str, llm_model: str) -> ModelSettings:
    return ModelSettings(
        url=llm_url,
        classifier=llm_model,
        summarizer=llm_model,
        context_window=2_048,
        max_output_tokens=160,
        attempts=1,
        timeout_s=150,
        summary_deadline_s=150,
    )


@pytest.fixture
async def chat(models: ModelSettings, llm_model: str, attempts: Counter[str]) -> AsyncIterator[ChatModel]:
    opened = ChatModel(models, llm_model, count=lambda _, outcome: attempts.update([outcome]))
    yield opened
    await opened.aclose()


@pytest.fixture
def attempts() -> Counter[str]:
    return Counter()


@pytest.mark.timeout(400)
async def test_the_schema_of_the_classifier_constrains_the_engine(chat: ChatModel) -> None:
    """Whatever it says is JSON of the schema, as far as its tokens reach."""

    def beginning(text: str) -> str:
        assert text.lstrip().startswith("{")
        return text

    system = "Answer with tiers, importance, and empty lists of facts and procedures."
    found = await chat.ask(system, {"text": "Hello"}, parse=beginning, schema=_short(), max_tokens=160)
    reply = extraction.parse(found)
    assert 0.0 <= reply.importance <= 1.0
    assert len(reply.facts) <= 1


def _short() -> dict[str, object]:
    """The classifier's schema with room for one short fact, so that a small model comes to an end."""
    schema = json.loads(json.dumps(extraction.schema()))
    schema["properties"]["facts"]["maxItems"] = 1
    schema["properties"]["procedures"]["maxItems"] = 0
    for field in schema["$defs"]["FactReply"]["properties"].values():
        if field.get("type") == "string":
            field["maxLength"] = 20
    return dict(schema)


@pytest.mark.timeout(600)
async def test_each_interaction_is_classified_by_the_model_or_by_the_rules(
    chat: ChatModel, models: ModelSettings, attempts: Counter[str]
) -> None:
    classifier = ModelClassifier(chat, load_prompt("classify"), RuleClassifier(), COUNTER, models)
    await classifier.ready()
    said = [interaction(text, speaker="Ann") for text in ("I prefer green tea.", "Hello!", "I live in Berlin.")]
    found = await classifier.classify(said)
    assert len(found) == len(said)
    assert attempts.total() == len(said)
    assert set(attempts) <= {"ok", InvalidOutput.code}
    for each in found:
        assert each.origin == (f"{chat.model} classify/1" if each.complete else "rules")
        assert 0.0 <= each.importance <= 1.0
    assert sum(each.complete for each in found) == attempts["ok"]


@pytest.mark.timeout(400)
async def test_a_summary_of_the_engine_keeps_its_limit(
    chat: ChatModel, models: ModelSettings, attempts: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    summarizer = ModelSummarizer(chat, load_prompt("summarize"), ExtractiveSummarizer(COUNTER), COUNTER, models)
    found = await summarizer.summarize(NOTES, query="Where does Ann live?", max_tokens=60)
    assert found
    assert COUNTER.count(found) <= 60
    assert attempts.total() == 1
    assert ("extractive" in caplog.text) == (attempts["ok"] == 0)
