"""What a new fact does to one that is believed already: says it again, takes its place, stands beside it, or is late.

Specification, "Consolidator", phase 3: a newer fact about the same (subject, predicate) supersedes the older one. Only
where it must: a person has one name and any number of friends. Which relation has one value is data here
(``ONE_VALUED``); a relation that is not known has many, so that what is not understood retires nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Verdict(StrEnum):
    """What happens when ``new`` meets ``old``."""

    SAME = "same"  # the old one is confirmed, nothing is stored
    SUPERSEDES = "supersedes"  # the old one is history
    COEXISTS = "coexists"
    YIELDS = "yields"  # the new one is history: of an earlier time, or less certain than what is known


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """What of a fact decides."""

    subject: str
    predicate: str  # snake_case
    object: str
    confidence: float  # 0.0 - 1.0
    valid_from: datetime


_ONE_VALUED = """
name nickname age birthday birthplace lives_in address employer occupation email phone partner marital_status
nationality gender native_language time_zone prefers_theme height weight salary manager status diet
"""
#: Relations that have one value at a time.
ONE_VALUED = frozenset(_ONE_VALUED.split())
_ONE_VALUED_BEGINNINGS = ("favourite_", "preferred_")
#: Relations whose objects are owned, so that a more exact description is of the same thing.
_POSSESSIONS = frozenset({"has", "owns", "allergic_to", "diagnosed_with", "is_a"})

_SYNONYMS: Mapping[str, str] = {
    name: relation
    for relation, names in {
        "name": "named called is_called is_named has_name",
        "age": "is_aged aged years_old has_age",
        "birthday": "born_on birth_date date_of_birth has_birthday",
        "birthplace": "from born_in is_from comes_from hometown",
        "lives_in": "lives_at lives resides_in located_in location moved_to home city residence is_living_in",
        "employer": "works_at works_for work_at employed_by employed_at company workplace is_employed_by",
        "occupation": "job profession works_as work_as is_a_profession role job_title title",
        "email": "email_address has_email",
        "phone": "phone_number telephone has_phone",
        "partner": "has_wife has_husband has_partner has_girlfriend has_boyfriend married_to spouse wife husband",
        "manager": "boss has_boss has_manager reports_to",
        "taste": "likes loves enjoys adores prefers is_fond_of fond_of fan_of is_a_fan_of favors favours",
        "-taste": "dislikes hates avoids detests can_not_stand cannot_stand",
        "has": "has_pet has_dog has_cat has_child has_son has_daughter has_sister has_brother has_friend keeps",
        "owns": "possesses bought",
        "-has": "lost gave_away",
        "-owns": "sold",
        "allergic_to": "is_allergic_to has_allergy allergy",
        "has_to": "must needs_to should has_duty",
        "diet": "eats_only follows_diet is_vegetarian is_vegan",
    }.items()
    for name in names.split()
}
_NEGATIONS = frozenset("not no never without longer stopped quit doesnt dont isnt cannot cant".split())  # noqa: SIM905
_AUXILIARIES = frozenset("is are was does do did has_been be been any".split())  # noqa: SIM905
_WORD = re.compile(r"\w+")
_EMPTY = frozenset("a an the my his her their its our your of in at to and very really so some new".split())  # noqa: SIM905
_DOUBT = 0.15  # how much less certain a new fact may be and still take the place of what is known


def judge(new: Statement, old: Statement, *, correction: bool = False) -> Verdict:
    """What ``new`` does to ``old``. A ``correction`` ("no, I meant ...") wins whatever its confidence."""
    (relation, affirmed), (known, was_affirmed) = _relation(new.predicate), _relation(old.predicate)
    if _folded(new.subject) != _folded(old.subject) or relation != known:
        return Verdict.COEXISTS
    said, believed = _terms(new.object), _terms(old.object)
    if affirmed == was_affirmed and said == believed:
        return Verdict.SAME
    if affirmed == was_affirmed and said and said < believed and (is_one_valued(relation) or relation in _POSSESSIONS):
        return Verdict.SAME  # less exact than what is known
    replaces = _replaces(relation, said, believed) if affirmed == was_affirmed else _is_of_the_same(said, believed)
    return _replacing(new, old, correction) if replaces else Verdict.COEXISTS


def _replaces(relation: str, said: frozenset[str], believed: frozenset[str]) -> bool:
    """Whether another value takes the place of the one that is believed: the only one, or a more exact one."""
    return is_one_valued(relation) or (relation in _POSSESSIONS and bool(believed) and believed < said)


def _is_of_the_same(said: frozenset[str], believed: frozenset[str]) -> bool:
    """Whether an opposite is about the same thing, or a part of it."""
    return said == believed or (bool(said) and bool(believed) and (said < believed or believed < said))


def _replacing(new: Statement, old: Statement, correction: bool) -> Verdict:
    if correction:
        return Verdict.SUPERSEDES
    if new.valid_from < old.valid_from or new.confidence + _DOUBT < old.confidence:
        return Verdict.YIELDS
    return Verdict.SUPERSEDES


def is_one_valued(relation: str) -> bool:
    return relation in ONE_VALUED or relation.startswith(_ONE_VALUED_BEGINNINGS)


def _relation(predicate: str) -> tuple[str, bool]:
    """The relation that a predicate names, and whether it is affirmed."""
    words = [word for word in predicate.casefold().split("_") if word and word not in _AUXILIARIES]
    kept = [word for word in words if word not in _NEGATIONS]
    affirmed = len(kept) == len(words)
    name = _known("_".join(kept)) or _known(predicate.casefold()) or "_".join(kept)
    if name.startswith("-"):
        return name[1:], not affirmed
    return name, affirmed


def _known(name: str) -> str | None:
    for each in (name, f"{name}s", name.removesuffix("s")):
        if each in _SYNONYMS:
            return _SYNONYMS[each]
        if each in ONE_VALUED or each in _POSSESSIONS or each == "taste":
            return each
    return name.replace("favorite_", "favourite_") if name.startswith(("favorite_", "favourite_")) else None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _terms(text: str) -> frozenset[str]:
    """The words that carry the value; plural endings go, but for names."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text))
    return frozenset(_singular(word) for word in words if word.casefold() not in _EMPTY)


def _singular(word: str) -> str:
    is_plural = len(word) > 3 and word.islower() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if is_plural else word.casefold()
