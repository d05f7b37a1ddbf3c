"""The built-in classifier: what it finds, and above all what it leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import EventType, FactDraft, Outcome
from memory.rules import MAX_FACTS, RuleClassifier, classify
from tests.builders import interaction

DATA = Path(os.environ.get("MNEMORAY_EVAL_DATA") or Path(__file__).parents[3] / "shared" / "data")

FOUND = [
    ("My name is Ann.", "Ann's name is Ann", "name"),
    ("I live in Oslo.", "Ann lives in Oslo", "lives_in"),
    ("Hi, my name is Ann Lee and this is fine.", "Ann's name is Ann Lee", "name"),
    ("I live in New York with my cat.", "Ann lives in New York", "lives_in"),
    ("I prefer dark mode over light mode.", "Ann prefers dark mode over light mode", "prefers"),
    ("Honestly, I hate cold coffee!", "Ann hates cold coffee", "hates"),
    ("I don't like horror films.", "Ann does not like horror films", "dislikes"),
    ("I'm allergic to peanuts.", "Ann is allergic to peanuts", "allergic_to"),
    ("I work at Acme Corp.", "Ann works at Acme Corp", "employer"),
    ("I'm 34 years old.", "Ann is 34 years old", "age"),
    ("My sister is named Maria.", "Ann's sister is Maria", "has_sister"),
    ("My favourite colour is green.", "Ann's favourite colour is green", "favourite_colour"),
    ("Remind me to call the bank.", "Ann wants to be reminded to call the bank", "reminder"),
    ("No, I meant Tuesday.", "Ann corrected: Tuesday", "corrected"),
]


@pytest.mark.parametrize(("text", "fact", "predicate"), FOUND)
def test_statements_become_self_contained_facts(text: str, fact: str, predicate: str) -> None:
    (found,) = classify(interaction(text, speaker="Ann")).facts
    assert (found.fact, found.predicate, found.subject) == (fact, predicate, "Ann")
    assert 0.5 <= found.confidence <= 0.95


@pytest.mark.parametrize(
    "text",
    [
        "Do you think I like tea?",
        "If I live in Oslo next year, we can meet.",
        "I would love a cup of tea.",
        "He said I hate cold coffee.",
        "I love it!",
        "I like that.",
        "Hello there.",
        "私は緑茶が好きです。",
        "Ich mag grünen Tee.",
        "",
    ],
)
def test_what_is_no_statement_becomes_no_fact(text: str) -> None:
    assert classify(interaction(text, speaker="Ann")).facts == ()


def test_an_assistant_without_a_name_says_nothing_about_the_user() -> None:
    assert classify(interaction("I prefer green tea.", role="assistant")).facts == ()
    assert classify(interaction("I prefer green tea.")).facts[0].fact == "User prefers green tea"


def test_a_how_to_becomes_a_skill_counted_by_its_outcome() -> None:
    text = "To deploy safely: first take the lock, then migrate, finally restart the workers."
    (skill,) = classify(interaction(text, outcome=Outcome.SUCCESS, reward=1.0)).skills
    assert skill.skill_name == "deploy_safely"
    assert skill.policy == {"steps": ["first take the lock", "migrate", "restart the workers"]}
    assert (skill.successes, skill.failures, skill.reward) == (1, 0, 1.0)


def test_importance_follows_outcome_and_type_and_the_caller_overrides_it() -> None:
    plain = classify(interaction("We had a long talk about the weather.")).importance
    failed = classify(
        interaction("The deploy broke.", event_type=EventType.OUTCOME, outcome=Outcome.FAILURE)
    ).importance
    assert plain < failed <= 1.0
    assert classify(interaction("x", importance=0.9)).importance == 0.9


def test_infer_false_keeps_only_what_the_caller_supplied() -> None:
    own = FactDraft(fact="Ann owns a boat")
    found = classify(interaction("I prefer green tea.", infer=False, facts=(own,)))
    assert found.facts == (own,)
    assert found.skills == ()


@pytest.mark.parametrize("text", ["a " * 30_000, "I am " * 12_000, "to " * 20_000, "first " * 10_000, "," * 60_000])
def test_long_repetitions_take_linear_time(text: str) -> None:
    started = process_time()
    classify(interaction(text))
    assert process_time() - started < 5, "a pattern backtracks"


@given(st.text(max_size=2_000))
def test_it_never_raises_and_keeps_its_bounds(text: str) -> None:
    found = classify(interaction(text, speaker="Ann"))
    assert 0.0 <= found.importance <= 1.0
    assert len(found.facts) <= MAX_FACTS
    assert all(len(fact.predicate or "") <= 128 and len(fact.subject or "") <= 256 for fact in found.facts)


async def test_the_port_answers_in_order() -> None:
    found = await RuleClassifier().classify([interaction("I prefer tea."), interaction("Hello.")])
    assert [len(each.facts) for each in found] == [1, 0]


def _lines(name: str) -> list[str]:
    file = DATA / name
    if not file.exists():
        pytest.skip(f"{file} is not here; set MNEMORAY_EVAL_DATA to the evaluation data")
    return file.read_text("utf-8").splitlines()


def test_texts_that_give_orders_gain_nothing() -> None:
    for line in _lines("injection_cases.jsonl"):
        found = classify(interaction(json.loads(line)["text"]))
        assert found.importance <= 0.65
        assert all(fact.confidence <= 0.95 for fact in found.facts)


def test_real_conversations_stay_in_the_band_and_give_few_facts() -> None:
    turns = [
        turn
        for sample in json.loads("\n".join(_lines("locomo_dev.json")))
        for name, value in sample["conversation"].items()
        if isinstance(value, list)
        for turn in value
    ]
    found = [classify(interaction(turn["text"], speaker=turn["speaker"])) for turn in turns]
    assert {0.4 <= each.importance <= 0.7 for each in found} == {True}
    facts = sum(len(each.facts) for each in found)
    assert 40 <= facts <= 800
