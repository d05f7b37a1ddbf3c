"""What a language model may say about one interaction, and what of it is believed.

A reply is data from a stranger: its shape is fixed by a JSON schema, checked again here, bounded in length, count and
repetition, and compared with the text that it claims to come from.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from memory.errors import InvalidOutput
from memory.records import (
    SKILL_NAME_MAX_LENGTH,
    Classification,
    FactDraft,
    FactScope,
    Interaction,
    Outcome,
    SkillDraft,
    Tier,
)

MAX_FACTS = 16
MAX_PROCEDURES = 4
MAX_STEPS = 20
MAX_REPLY = 65_536  # characters
REPEATED_SHARE = 0.5  # of a text's words that may be one and the same
REPEATED_FROM = 12  # words; shorter texts repeat themselves in good faith
_WORD = re.compile(r"\w+")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # scripts without spaces: each character is a word


def _words(text: str) -> list[str]:
    return _WIDE.sub(lambda found: f" {found.group()} ", text.casefold()).split()


Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]
Subject = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=256)]
Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FactReply(_Reply):
    """One statement that stands on its own."""

    fact: Sentence
    subject: Subject
    predicate: Name
    object: Sentence
    confidence: Unit
    valid_from: Annotated[str, Field(max_length=40)] | None = None


class ProcedureReply(_Reply):
    """How something is done."""

    skill: Name
    trigger: Sentence
    steps: Annotated[list[Sentence], Field(min_length=1, max_length=MAX_STEPS)]
    tools: Annotated[list[Name], Field(max_length=MAX_STEPS)] = []
    outcome: Literal["success", "failure", "partial", "unknown"] = "unknown"


class Reply(_Reply):
    """The whole reply of the classifier."""

    tiers: Annotated[list[Literal["episodic", "semantic", "procedural"]], Field(max_length=3)]
    importance: Unit
    facts: Annotated[list[FactReply], Field(max_length=MAX_FACTS)]
    procedures: Annotated[list[ProcedureReply], Field(max_length=MAX_PROCEDURES)]


def schema() -> Mapping[str, Any]:
    """The JSON schema that constrains the model's decoding."""
    return Reply.model_json_schema()


def parse(text: str) -> Reply:
    """Raises ``InvalidOutput`` for anything but one JSON object of the schema; prose around it is passed over."""
    return _checked(_object(text))


def _checked(found: Any) -> Reply:
    try:
        return Reply.model_validate(found)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidOutput(f"{where}: {first['msg']} ({exc.error_count()} faults)") from None


def _object(text: str) -> Any:
    """The first JSON object in a text."""
    if len(text) > MAX_REPLY:
        raise InvalidOutput(f"the reply has {len(text)} characters, more than {MAX_REPLY}")
    start = text.find("{")
    if start < 0:
        raise InvalidOutput("the reply holds no JSON object")
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError) as exc:
        raise InvalidOutput(f"the reply is no JSON: {exc}") from None


def repeats(text: str) -> bool:
    """Whether one word, or one short phrase, makes up most of a longer text, as when a model is caught in a loop."""
    words = _words(text)
    if len(words) < REPEATED_FROM:
        return False
    return any(max(Counter(_runs(words, size)).values()) * size > REPEATED_SHARE * len(words) for size in (1, 2, 3, 4))


def _runs(words: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + size]) for at in range(0, len(words) - size + 1, size)]


def classification(reply: Reply, interaction: Interaction) -> Classification:
    """What is kept of a reply. The caller's own importance and facts stand; the episode is kept in any case."""
    facts = [draft for each in reply.facts if (draft := _fact(each, interaction))] if "semantic" in reply.tiers else []
    skills = [_skill(each, interaction) for each in reply.procedures if _is_kept(each, interaction)]
    if Tier.PROCEDURAL.value not in reply.tiers:
        skills = []
    importance = reply.importance if interaction.importance is None else interaction.importance
    return Classification(importance=importance, facts=(*interaction.facts, *_distinct(facts)), skills=tuple(skills))


def _fact(reply: FactReply, interaction: Interaction) -> FactDraft | None:
    if repeats(reply.fact) or not is_grounded(f"{reply.fact} {reply.object}", interaction):
        return None
    return FactDraft(
        fact=reply.fact,
        subject=reply.subject,
        predicate="_".join(_WORD.findall(reply.predicate.casefold())) or None,
        object=reply.object,
        confidence=reply.confidence,
        scope=FactScope.USER,
        valid_from=_moment(reply.valid_from),
    )


def _distinct(facts: Sequence[FactDraft]) -> list[FactDraft]:
    return list({draft.fact.casefold(): draft for draft in reversed(facts)}.values())[::-1]


def _is_kept(reply: ProcedureReply, interaction: Interaction) -> bool:
    text = " ".join((reply.trigger, *reply.steps))
    return not repeats(text) and is_grounded(text, interaction)


def _skill(reply: ProcedureReply, interaction: Interaction) -> SkillDraft:
    """The outcome counts only where the interaction itself has one: a model's word for it is no evidence."""
    return SkillDraft(
        skill_name="_".join(_WORD.findall(reply.skill.casefold()))[:SKILL_NAME_MAX_LENGTH] or "skill",
        trigger_pattern=reply.trigger,
        policy={"steps": list(reply.steps), "said_outcome": reply.outcome},
        tool_sequence=list(reply.tools) or None,
        successes=int(interaction.outcome is Outcome.SUCCESS),
        failures=int(interaction.outcome is Outcome.FAILURE),
        reward=interaction.reward,
    )


def is_grounded(text: str, interaction: Interaction) -> bool:
    """Whether a statement shares a telling word with what was said.

    A model that has nothing to say repeats the examples of its prompt; names alone do not count, since every statement
    about a speaker has them.
    """
    said = _telling(interaction.content)
    names = _telling(f"{interaction.speaker or ''} {interaction.user_id}")
    return bool((_telling(text) - names) & said)


def _telling(text: str) -> set[str]:
    """Stems of four letters of words of at least four, numbers, and single characters of scripts without spaces."""
    words = (word for piece in _words(text) for word in _WORD.findall(piece))
    return {word[:4] for word in words if len(word) > 3 or word.isdigit() or _WIDE.match(word)}


def _moment(text: str | None) -> datetime | None:
    """A date or a time of the model's; what cannot be read, or has no meaning, is no date."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None
