"""What a new fact does to one that is believed already."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.contradictions import DATA, load, outcomes
from memory.contradiction import Statement, Verdict, judge
from memory.rules import RuleClassifier
from tests.builders import NOW

LATER = NOW + timedelta(days=1)


def statement(predicate: str, value: str, **changes: object) -> Statement:
    values = {"subject": "Ann", "confidence": 0.8, "valid_from": NOW} | changes
    return Statement(predicate=predicate, object=value, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (("lives_in", "Berlin"), ("resides_in", "Hamburg"), Verdict.SUPERSEDES),
        (("name", "Anna"), ("is_called", "Anne"), Verdict.SUPERSEDES),
        (("favorite_color", "blue"), ("favourite_color", "green"), Verdict.SUPERSEDES),
        (("loves", "Chinese food"), ("hates", "Chinese food"), Verdict.SUPERSEDES),
        (("likes", "tea"), ("does_not_like", "tea"), Verdict.SUPERSEDES),
        (("hates", "cats"), ("not_hates", "a cat"), Verdict.SUPERSEDES),
        (("owns", "a car"), ("sold", "the car"), Verdict.SUPERSEDES),
        (("has_dog", "a dog"), ("has", "a dog called Rex"), Verdict.SUPERSEDES),
        (("has", "a dog called Rex"), ("has", "a dog"), Verdict.SAME),
        (("works_at", "Siemens"), ("employer", "Siemens AG"), Verdict.SUPERSEDES),
        (("likes", "tea"), ("loves", "Tea"), Verdict.SAME),
        (("likes", "tea"), ("likes", "green tea"), Verdict.COEXISTS),
        (("loves", "pizza"), ("hates", "pineapple"), Verdict.COEXISTS),
        (("likes", "tea"), ("likes", "coffee"), Verdict.COEXISTS),
        (("visited", "Rome"), ("visited", "Oslo"), Verdict.COEXISTS),
        (("lives_in", "Berlin"), ("employer", "Bosch"), Verdict.COEXISTS),
        (("speaks", "French"), ("taught", "French"), Verdict.COEXISTS),
        (("lives_in", "Berlin"), ("lives_in", "berlin"), Verdict.SAME),
        (("favourite_film", "Alien"), ("favourite_film", "Aliens"), Verdict.SUPERSEDES),
        (("likes", ""), ("hates", "tea"), Verdict.COEXISTS),
    ],
)
def test_relations_decide(old: tuple[str, str], new: tuple[str, str], verdict: Verdict) -> None:
    assert judge(statement(*new, valid_from=LATER), statement(*old)) is verdict


def test_another_subject_is_another_matter() -> None:
    assert judge(statement("lives_in", "Oslo", subject="Bob"), statement("lives_in", "Rome")) is Verdict.COEXISTS
    assert judge(statement("lives_in", "Oslo", subject="ANN"), statement("lives_in", "Rome")) is Verdict.SUPERSEDES


def test_what_is_older_or_less_certain_yields_and_a_correction_does_not() -> None:
    known = statement("lives_in", "Rome", valid_from=LATER)
    assert judge(statement("lives_in", "Oslo"), known) is Verdict.YIELDS
    assert judge(statement("lives_in", "Oslo", valid_from=LATER, confidence=0.4), known) is Verdict.YIELDS
    assert judge(statement("lives_in", "Oslo", valid_from=LATER, confidence=0.7), known) is Verdict.SUPERSEDES
    assert judge(statement("lives_in", "Oslo", confidence=0.4), known, correction=True) is Verdict.SUPERSEDES


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_what_is_not_understood_retires_nothing(one: str, other: str, value: str, another: str) -> None:
    new, old = statement(f"x{one}", value), statement(f"y{other}", another)
    assert judge(new, old) is Verdict.COEXISTS
    assert judge(old, old) is Verdict.SAME


async def test_pairs_of_statements_read_by_the_rules() -> None:
    """The rules are silent about many; what they replace, they must be right about."""
    pairs = load(DATA)
    assert len(pairs) >= 150
    found = await outcomes(pairs, RuleClassifier())
    right = {pair.kind: 0 for pair in pairs}
    for pair, outcome in zip(pairs, found, strict=True):
        right[pair.kind] += pair.expect == outcome
        if pair.expect == "kept":
            assert outcome == "kept", pair
    floors = {"update": 17, "negation": 13, "correction": 17, "refinement": 12, "paraphrase": 12}
    assert {kind: right[kind] >= floor for kind, floor in floors.items()} == dict.fromkeys(floors, True), right
