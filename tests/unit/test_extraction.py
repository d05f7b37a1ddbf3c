"""What is believed of a language model's reply."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import InvalidOutput
from memory.extraction import MAX_FACTS, classification, is_grounded, parse, repeats, schema
from memory.records import FactDraft, Outcome
from tests.builders import interaction

FACT = {
    "fact": "Ann has a dog called Rex.",
    "subject": "Ann",
    "predicate": "has pet",
    "object": "a dog called Rex",
    "confidence": 0.9,
    "valid_from": None,
}
PROCEDURE = {
    "skill": "Fix the build",
    "trigger": "when the build breaks",
    "steps": ["clear the cache", "build again"],
    "tools": ["make"],
    "outcome": "success",
}


def reply(**changes: Any) -> dict[str, Any]:
    whole = {"tiers": ["episodic", "semantic", "procedural"], "importance": 0.6, "facts": [FACT], "procedures": []}
    return whole | changes


def test_a_reply_becomes_facts_and_skills() -> None:
    said = interaction("I have a dog called Rex. When the build breaks, clear the cache.", speaker="Ann")
    found = classification(parse(json.dumps(reply(procedures=[PROCEDURE]))), said)
    assert found.importance == 0.6
    (fact,) = found.facts
    assert (fact.fact, fact.subject, fact.predicate, fact.confidence) == (FACT["fact"], "Ann", "has_pet", 0.9)
    (skill,) = found.skills
    assert (skill.skill_name, skill.tool_sequence, skill.policy["steps"]) == (
        "fix_the_build",
        ["make"],
        ["clear the cache", "build again"],
    )
    assert (skill.successes, skill.failures) == (0, 0)  # the model's word for it is no evidence


def test_an_outcome_that_the_caller_gave_counts() -> None:
    said = interaction("When the build breaks, clear the cache.", outcome=Outcome.FAILURE)
    (skill,) = classification(parse(json.dumps(reply(facts=[], procedures=[PROCEDURE]))), said).skills
    assert (skill.successes, skill.failures) == (0, 1)


def test_what_the_caller_gave_stands() -> None:
    given_ = FactDraft(fact="Ann is a nurse.")
    said = interaction("I have a dog called Rex.", importance=0.1, facts=(given_,))
    found = classification(parse(json.dumps(reply())), said)
    assert (found.importance, found.facts[0]) == (0.1, given_)


def test_facts_of_a_tier_that_was_not_named_are_left_out() -> None:
    said = interaction("I have a dog called Rex.")
    assert classification(parse(json.dumps(reply(tiers=["episodic"], procedures=[PROCEDURE]))), said).facts == ()


def test_a_date_that_was_said_is_kept_and_nonsense_is_none() -> None:
    said = interaction("I have had a dog called Rex since May.", speaker="Ann")
    dates = {
        "2023-05-01": datetime(2023, 5, 1, tzinfo=UTC),
        "2023-05-01T10:00:00+02:00": datetime(2023, 5, 1, 8, tzinfo=UTC),
        "May": None,
        "0001-01-01T00:00:00+14:00": None,
        "": None,
    }
    for text, moment in dates.items():
        (fact,) = classification(parse(json.dumps(reply(facts=[FACT | {"valid_from": text}]))), said).facts
        assert fact.valid_from == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "I cannot do that.",
        json.dumps(reply())[:-20],
        '{"tiers": ["episodic"], "importance": 0.5, "facts": [{"fact": "a\\x"}], "procedures": []}',
        json.dumps(reply(tiers=["working"])),
        json.dumps(reply(importance=1.5)),
        json.dumps(reply(importance=float("nan"))),
        json.dumps(reply(importance="high")),
        json.dumps(reply(facts=None)),
        json.dumps(reply(facts=[FACT | {"fact": "x" * 501}])),
        json.dumps(reply(facts=[FACT | {"fact": " "}])),
        json.dumps(reply(facts=[FACT | {"confidence": -1}])),
        json.dumps(reply(facts=[FACT] * (MAX_FACTS + 1))),
        json.dumps(reply(procedures=[PROCEDURE | {"steps": []}])),
        json.dumps(reply(procedures=[PROCEDURE | {"outcome": "great"}])),
        "{" * 100_000,
        '{"tiers":' + "[" * 60_000,
        "x" * 70_000 + json.dumps(reply()),
    ],
)
def test_what_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(InvalidOutput):
        parse(text)


def test_prose_around_the_object_is_passed_over() -> None:
    text = json.dumps(reply())
    assert parse(f"Sure! Here it is:\n```json\n{text}\n```\nAnything else? {{}}") == parse(text)


@given(st.text())
def test_any_text_is_a_reply_or_refused(text: str) -> None:
    with suppress(InvalidOutput):
        parse(text)


def test_a_loop_is_told_from_a_text() -> None:
    assert repeats("dog " * 3_000)
    assert repeats("the big dog " * 30)
    assert repeats("犬" * 200)
    assert repeats("Ann likes tea and " + "very " * 40)
    assert not repeats("very very very good")
    assert not repeats("Ann has a dog called Rex, and Rex has a friend called Tom, whom Ann has known for many years.")
    said = interaction("I have a dog called Rex.", speaker="Ann")
    looped = FACT | {"fact": "Rex the dog " * 20}
    assert classification(parse(json.dumps(reply(facts=[looped, FACT]))), said).facts[0].fact == FACT["fact"]


def test_a_fact_that_shares_nothing_with_the_text_is_no_fact() -> None:
    said = interaction("See you at eight!", speaker="Ann")
    assert classification(parse(json.dumps(reply(procedures=[PROCEDURE]))), said).facts == ()
    assert classification(parse(json.dumps(reply(procedures=[PROCEDURE]))), said).skills == ()
    assert not is_grounded("Ann likes Ann", said)  # her name alone is in every statement about her
    assert is_grounded("アンは犬を飼っている", interaction("犬を飼っています", speaker="アン"))
    assert is_grounded("Ann zog 2021 um", interaction("2021 bin ich umgezogen", speaker="Ann"))


def test_the_same_fact_twice_is_one() -> None:
    said = interaction("I have a dog called Rex.", speaker="Ann")
    twice = [FACT, FACT | {"fact": str(FACT["fact"]).upper()}]
    assert len(classification(parse(json.dumps(reply(facts=twice))), said).facts) == 1


def test_the_schema_bounds_what_is_generated() -> None:
    found = schema()
    assert found["properties"]["facts"]["maxItems"] == MAX_FACTS
    assert set(found["required"]) == {"tiers", "importance", "facts", "procedures"}
