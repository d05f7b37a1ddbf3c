"""The built-in classifier: deterministic rules for English, no model.

It finds first-person preferences, identity statements, obligations, dated plans, corrections and how-to outcomes,
prefers silence to a wrong fact, and knows nothing of other languages. What it reads is data: a text that asks to be
trusted is scored like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.records import Classification, EventType, FactDraft, Interaction, Outcome, SkillDraft

MAX_FACTS = 8  # per interaction
MAX_FACT_LENGTH = 300  # characters of a statement; longer ones are rarely one statement
MAX_CONTENT = 16_384  # characters that are read

_SENTENCE = re.compile(r"[^.!?\n]{1,600}[.!?]?")
_HEDGE = re.compile(
    r"\b(?:if|would|might|could|should|maybe|perhaps|wish|imagine|pretend|suppose|someone|(?:they|he|she) said)\b",
    re.IGNORECASE,
)
#: Words that begin with a capital letter, as names of places and firms do.
_PROPER = r"(?P<value>[A-Z][\w.'-]{1,40}(?: (?:of |& )?[A-Z][\w.'-]{0,40}){0,4})"
_VALUE = r"(?P<value>[^,;:()\"]{2,120})"


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """A pattern of one sentence, and the fact it states; ``{who}`` is the speaker."""

    pattern: re.Pattern[str]
    predicate: str
    template: str
    confidence: float


def _rule(pattern: str, predicate: str, template: str, confidence: float) -> _Rule:
    # A name begins with a capital letter, and only in such a rule does the case matter.
    compiled = re.compile(pattern, 0 if "[A-Z]" in pattern else re.IGNORECASE)
    return _Rule(pattern=compiled, predicate=predicate, template=template, confidence=confidence)


_RULES: tuple[_Rule, ...] = (
    _rule(
        r"\b[Mm]y name is (?P<value>[^\W\d_][\w'-]{1,40}(?: [A-Z][\w'-]{1,40})?)",
        "name",
        "{who}'s name is {value}",
        0.95,
    ),
    _rule(r"\bI(?:'m| am) (?P<value>\d{1,3}) years old\b", "age", "{who} is {value} years old", 0.9),
    _rule(r"\bI(?:'m| am) (?:originally )?from " + _PROPER, "from", "{who} is from {value}", 0.9),
    _rule(r"\bI live in " + _PROPER, "lives_in", "{who} lives in {value}", 0.9),
    _rule(r"\bI (?:just |recently )?moved to " + _PROPER, "lives_in", "{who} moved to {value}", 0.8),
    _rule(r"\bI work (?:at|for) " + _PROPER, "employer", "{who} works at {value}", 0.9),
    _rule(rf"\bI work as an? {_VALUE}", "occupation", "{who} works as {value}", 0.9),
    _rule(
        r"\bI(?:'m| am) an? (?P<value>(?:[\w-]+ ){0,2}(?:\w+er|\w+or|\w+ist|\w+ian|nurse|chef|student|coach|vegan))\b",
        "occupation",
        "{who} is a {value}",
        0.75,
    ),
    _rule(rf"\bI(?:'m| am) allergic to {_VALUE}", "allergic_to", "{who} is allergic to {value}", 0.95),
    _rule(
        r"\b[Mm]y (?P<relation>wife|husband|partner|son|daughter|brother|sister|mother|mom|father|dad|dog|cat|boss)"
        r"(?:'s name is| is named| is called|,) (?P<value>[A-Z][\w'-]{1,40})",
        "has_{relation}",
        "{who}'s {relation} is {value}",
        0.9,
    ),
    _rule(
        r"\bmy fav(?:ou?rite)? (?P<relation>[\w ]{2,30}?) (?:is|are) " + _VALUE,
        "favourite_{relation}",
        "{who}'s favourite {relation} is {value}",
        0.9,
    ),
    _rule(rf"\bI (?:really |much |strongly )?prefer {_VALUE}", "prefers", "{who} prefers {value}", 0.9),
    _rule(rf"\bI (?:really |absolutely |just )?(?:love|adore) {_VALUE}", "loves", "{who} loves {value}", 0.8),
    _rule(
        rf"\bI (?:really |absolutely )?(?:hate|detest|can't stand|cannot stand) {_VALUE}",
        "hates",
        "{who} hates {value}",
        0.8,
    ),
    _rule(rf"\bI (?:really )?(?:don't|do not) like {_VALUE}", "dislikes", "{who} does not like {value}", 0.8),
    _rule(rf"\bI (?:really )?(?:like|enjoy) {_VALUE}", "likes", "{who} likes {value}", 0.75),
    _rule(rf"\bI (?:have|need) to {_VALUE}", "has_to", "{who} has to {value}", 0.6),
    _rule(rf"\b(?:please )?remind me to {_VALUE}", "reminder", "{who} wants to be reminded to {value}", 0.8),
    _rule(
        r"\bI(?:'m| am) (?:going|planning) to (?P<value>[^,;:()\"]{3,80}? "
        r"(?:tomorrow|tonight|next \w+|this \w+|on \w+(?: \d{1,2})?|in \w+))\b",
        "plans",
        "{who} plans to {value}",
        0.7,
    ),
)
_CORRECTION = re.compile(
    rf"\b(?:no,? I meant|actually,? (?:it's|it is|that's|my)|correction:|I meant to say) {_VALUE}", re.IGNORECASE
)
_OBLIGATION = re.compile(r"\b(?:must|have to|need to|deadline|due|remind me|don't forget|important)\b", re.IGNORECASE)
_HOW_TO = re.compile(
    r"\b(?:to|how to) (?P<goal>[a-z][^,.:;\n]{3,80})[,:] (?:you )?(?P<steps>(?:first|start by|1[.)]) [^\n]{5,1500})",
    re.IGNORECASE,
)
_STEP = re.compile(r"(?:,\s*|;\s*|\.\s+|\s+)(?:then|next|after that|finally|and then|\d[.)])\s+", re.IGNORECASE)
# A vague object makes a statement that nobody understands later.
_VAGUE = re.compile(
    r"^(?:it|that|this|them|those|these|you|how|to|what|when|the way|one|some|your|her|his|him|their|being able)\b",
    re.IGNORECASE,
)

_BASE = {
    EventType.CONVERSATION: 0.45,
    EventType.OBSERVATION: 0.45,
    EventType.ACTION: 0.5,
    EventType.OUTCOME: 0.6,
}
_OUTCOME_BONUS = {Outcome.SUCCESS: 0.1, Outcome.FAILURE: 0.2, Outcome.PARTIAL: 0.1, Outcome.UNKNOWN: 0.0}


class RuleClassifier:
    """The Classifier port over these rules."""

    async def classify(self, interactions: Sequence[Interaction]) -> list[Classification]:
        return [classify(interaction) for interaction in interactions]


def classify(interaction: Interaction) -> Classification:
    """Importance, facts and skills of one interaction. Never raises."""
    content = interaction.content[:MAX_CONTENT]
    found = tuple(_facts(interaction, content)) if interaction.infer else ()
    skills = tuple(_skills(interaction, content)) if interaction.infer else ()
    importance = interaction.importance
    if importance is None:
        importance = _importance(interaction, content, found)
    return Classification(importance=importance, facts=(*interaction.facts, *found), skills=skills)


def _importance(interaction: Interaction, content: str, facts: Sequence[FactDraft]) -> float:
    """Chit-chat stays in a narrow band, so that importance cannot swamp relevance."""
    bonus = _OUTCOME_BONUS[interaction.outcome] if interaction.outcome else 0.0
    bonus += 0.05 * min(2, len(facts))
    bonus += 0.05 if _OBLIGATION.search(content) else 0.0
    bonus += 0.05 if _CORRECTION.search(content) else 0.0
    bonus -= 0.05 if len(content.split()) < 4 else 0.0
    return round(min(1.0, max(0.0, _BASE[interaction.event_type] + bonus)), 3)


def _facts(interaction: Interaction, content: str) -> Iterable[FactDraft]:
    who = interaction.speaker or ("User" if interaction.role == "user" else None)
    if who is None:
        return []
    found: dict[str, FactDraft] = {}
    for sentence in _SENTENCE.findall(content):
        for draft in _of_sentence(sentence.strip(), who):
            found.setdefault(draft.fact, draft)
    return list(found.values())[:MAX_FACTS]


def _of_sentence(sentence: str, who: str) -> Iterable[FactDraft]:
    """At most one fact per rule; questions and hypotheticals state nothing."""
    if sentence.endswith("?") or _HEDGE.search(sentence):
        return []
    drafts = [_draft(rule, match, who) for rule in _RULES if (match := rule.pattern.search(sentence))]
    if (match := _CORRECTION.search(sentence)) and not any(drafts):
        drafts.append(_draft(_CORRECTED, match, who))
    return [draft for draft in drafts if draft is not None]


_CORRECTED = _Rule(pattern=_CORRECTION, predicate="corrected", template="{who} corrected: {value}", confidence=0.6)


def _draft(rule: _Rule, match: re.Match[str], who: str) -> FactDraft | None:
    value = _trimmed(match["value"])
    relation = (match.groupdict().get("relation") or "").strip().casefold()
    if not value or _VAGUE.match(value):
        return None
    fact = rule.template.format(who=who, value=value, relation=relation)
    if len(fact) > MAX_FACT_LENGTH:
        return None
    return FactDraft(
        fact=fact,
        subject=who[:256],
        predicate=rule.predicate.format(relation=relation.replace(" ", "_"))[:128],
        object=value,
        confidence=rule.confidence,
    )


def _trimmed(value: str) -> str:
    """Without the next clause and what trails it."""
    clause = re.split(r"\s(?:but|because|so|and I|and it|and we|which|since|when|while)\s", value, maxsplit=1)[0]
    return re.sub(r"\s(?:too|as well|so much|a lot|right now|though|lol|haha)$", "", clause.strip(" .!-—*"))


def _skills(interaction: Interaction, content: str) -> Iterable[SkillDraft]:
    """A how-to with its steps, counted by the interaction's outcome."""
    match = _HOW_TO.search(content)
    if match is None:
        return []
    goal = match["goal"].strip()
    steps = [step.strip(" .") for step in _STEP.split(match["steps"]) if step.strip(" .")]
    if len(steps) < 2:
        return []
    draft = SkillDraft(
        skill_name=_name(goal),
        trigger_pattern=goal,
        policy={"steps": steps[:20]},
        successes=int(interaction.outcome is Outcome.SUCCESS),
        failures=int(interaction.outcome is Outcome.FAILURE),
        reward=interaction.reward,
    )
    return [draft]


def _name(goal: str) -> str:
    words = re.findall(r"\w+", goal.casefold())[:6]
    return "_".join(words)[:128] or "skill"
