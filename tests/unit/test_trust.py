"""Trust: nothing gets above the limit of the channel that it came through, whoever says so."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import Classification, FactDraft, SkillDraft, Trust
from memory.rules import _RULES, classify
from memory.trust import CONFIDENCE_LIMITS, IMPORTANCE_LIMITS, PROMOTION_FLOOR, UNTRUSTED, bounded, lower_of
from stores.valkey.codec import decode_interaction, encode_interaction, fingerprint
from tests.builders import interaction

SKILL = SkillDraft(skill_name="deploy", trigger_pattern="to deploy", policy={"steps": ["a", "b"]})
UNIT = st.floats(0, 1)


def found(*confidences: float, importance: float = 1.0) -> Classification:
    facts = [FactDraft(fact=f"fact {number}", confidence=each) for number, each in enumerate(confidences)]
    return Classification(importance=importance, facts=facts, skills=(SKILL,))


@given(trust=st.sampled_from(Trust), confidences=st.lists(UNIT, max_size=5), importance=UNIT, floor=UNIT)
def test_nothing_is_above_its_limit_and_nothing_is_lost(
    trust: Trust, confidences: list[float], importance: float, floor: float
) -> None:
    said = found(*confidences, importance=importance)
    kept = bounded(said, interaction(trust=trust), promotion_floor=floor)
    facts = sorted([*kept.facts, *kept.quarantined], key=lambda fact: fact.fact)
    assert [fact.confidence for fact in facts] == [min(each, CONFIDENCE_LIMITS[trust]) for each in confidences]
    assert kept.importance == min(importance, IMPORTANCE_LIMITS[trust])
    if trust in UNTRUSTED:
        assert all(fact.confidence >= floor for fact in kept.facts)
        assert all(fact.confidence < floor for fact in kept.quarantined)
        assert kept.skills == ()
    else:
        assert kept.quarantined == ()
        assert kept.skills == (SKILL,)


def test_at_the_default_floor_no_untrusted_fact_is_believed() -> None:
    assert all(CONFIDENCE_LIMITS[trust] < PROMOTION_FLOOR for trust in UNTRUSTED)


def test_what_the_rules_find_in_a_users_words_is_unchanged() -> None:
    assert max(rule.confidence for rule in _RULES) <= CONFIDENCE_LIMITS[Trust.USER]
    said = interaction("My name is Ann. I prefer green tea. Remind me to call Bob tomorrow.", speaker="Ann")
    assert bounded(classify(said), said, promotion_floor=PROMOTION_FLOOR) == classify(said)


def test_importance_that_the_caller_gave_stands() -> None:
    given_ = interaction(trust=Trust.EXTERNAL, importance=0.9)
    assert bounded(found(importance=0.9), given_, promotion_floor=0.7).importance == 0.9


def test_the_limits_fall_with_trust() -> None:
    for limits in (CONFIDENCE_LIMITS, IMPORTANCE_LIMITS):
        assert list(limits) == list(Trust)
        assert sorted(limits.values(), reverse=True) == list(limits.values())


@pytest.mark.parametrize(
    ("one", "other", "lower"),
    [("user", "system", "user"), ("user", "tool", "tool"), ("external", "tool", "external"), ("user", "user", "user")],
)
def test_the_less_trusted_of_two(one: str, other: str, lower: str) -> None:
    assert lower_of(Trust(one), Trust(other)) is lower_of(Trust(other), Trust(one)) is Trust(lower)


@pytest.mark.parametrize("trust", Trust)
def test_trust_travels_through_the_stream(trust: Trust) -> None:
    sent = interaction(trust=trust)
    assert decode_interaction(encode_interaction(sent)) == sent


def test_an_entry_of_before_trust_is_a_users() -> None:
    entry = json.loads(encode_interaction(interaction(trust=Trust.TOOL)))
    del entry["trust"]
    assert decode_interaction(json.dumps(entry).encode()).trust is Trust.USER


def test_the_usual_trust_leaves_entries_and_fingerprints_as_they_were() -> None:
    usual = interaction()
    assert "trust" not in json.loads(encode_interaction(usual))
    assert "trust" not in json.loads(fingerprint(usual, occurred_now=False))


def test_another_trust_is_another_write() -> None:
    prints = {fingerprint(interaction(trust=trust), occurred_now=False) for trust in Trust}
    assert len(prints) == len(Trust)
