"""How far a channel is believed: what a text may claim for itself ends here.

A classifier, whichever it is, and a caller who supplies facts say how sure they are. The channel says how sure one may
be. Every fact of every write passes ``bounded`` before it is stored, so that no text, and no model that a text talked
into something, gets above the limit of the channel it came through.

The confidence limits. *System* is the application's own word: nothing is taken off. *User* is 0.95, the highest that
the built-in rules give ("my name is ..."), because people err and joke; what the rules find is unchanged. *Tool* is
0.6: below the 0.7 that a fact has where nobody says anything, so that what a user said wins a contradiction. *External*
is 0.3: anybody can write a web page. Between 0.3 and 0.6, and above 0.6, there is room for the promotion floor: at its
default no untrusted fact is believed before it is released; at 0.6 those that tools are sure of are; at 0.3 all of
them may be.

The importance limits hold for what a classifier judges from the text. Importance that the caller gave stands: the
caller is authenticated, the text is not. A tool's text may weigh as much as the weightiest conversation (0.7), so that
a failing tool is still remembered; an external one no more than any other memory (0.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memory.records import Classification, FactDraft, Interaction, Trust

CONFIDENCE_LIMITS: Mapping[Trust, float] = {
    Trust.SYSTEM: 1.0,
    Trust.USER: 0.95,
    Trust.TOOL: 0.6,
    Trust.EXTERNAL: 0.3,
}
IMPORTANCE_LIMITS: Mapping[Trust, float] = {
    Trust.SYSTEM: 1.0,
    Trust.USER: 1.0,
    Trust.TOOL: 0.7,
    Trust.EXTERNAL: 0.5,
}
UNTRUSTED = frozenset({Trust.TOOL, Trust.EXTERNAL})
PROMOTION_FLOOR = 0.7  # confidence that a fact of an untrusted channel needs to be recalled without a release
_RANK = tuple(Trust)  # most trusted first


def lower_of(one: Trust, other: Trust) -> Trust:
    """The less trusted of two channels."""
    return max(one, other, key=_RANK.index)


def bounded(found: Classification, interaction: Interaction, *, promotion_floor: float) -> Classification:
    """The classification within what the interaction's channel may say.

    A skill has no confidence to limit, and one of the same name would replace the steps of a skill that works:
    untrusted channels teach none.
    """
    trust = interaction.trust
    facts = tuple(_limited(fact, CONFIDENCE_LIMITS[trust]) for fact in found.facts)
    importance = found.importance
    if interaction.importance is None:
        importance = min(importance, IMPORTANCE_LIMITS[trust])
    if trust not in UNTRUSTED:
        return replace(found, facts=facts, importance=importance)
    return replace(
        found,
        facts=tuple(fact for fact in facts if fact.confidence >= promotion_floor),
        quarantined=tuple(fact for fact in facts if fact.confidence < promotion_floor),
        skills=(),
        importance=importance,
    )


def _limited(fact: FactDraft, limit: float) -> FactDraft:
    return fact if fact.confidence <= limit else replace(fact, confidence=limit)
