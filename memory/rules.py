"""The built-in classifier: deterministic rules for English, no model.

It finds first-person preferences, identity statements, obligations, dated events and plans, corrections and how-to
outcomes, prefers silence to a wrong fact, and knows nothing of other languages. What it reads is data: a text that
asks to be trusted is scored like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from memory.dates import When, resolved
from memory.records import SKILL_NAME_MAX_LENGTH, Classification, EventType, FactDraft, Interaction, Outcome, SkillDraft

MAX_FACTS = 8  # found by rules in one interaction
MAX_FACT_LENGTH = 500  # characters of a statement
MAX_SUBJECT_LENGTH = 256
MAX_PREDICATE_LENGTH = 128
MAX_CONTENT = 65_536  # characters that are read
MAX_SENTENCES = 1_000  # that are looked at; bounds the time for texts of nothing but full stops
MAX_SENTENCE_LENGTH = 400  # longer ones are rarely one statement
MAX_STEPS = 20
CHAT_BAND = (0.4, 0.7)  # importance of conversation without an outcome

# ---- facts


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """A pattern of one sentence, and the fact it states; ``{who}`` is the speaker."""

    pattern: re.Pattern[str]
    predicate: str
    template: str
    confidence: float
    tense: Literal["past", "future"] | None = None  # if set, it states something only together with such a date


def _rule(
    pattern: str, predicate: str, template: str, confidence: float, *, tense: Literal["past", "future"] | None = None
) -> _Rule:
    compiled = re.compile(pattern, re.IGNORECASE)
    return _Rule(pattern=compiled, predicate=predicate, template=template, confidence=confidence, tense=tense)


_VALUE = r"(?P<value>(?:[^,;:()]|,(?= (?:19|20)\d\d\b)){2,160})"  # one clause; "May 5, 2021" may be in it
_CAPITAL = r"(?!I\b)(?-i:[^\W\d_a-z])[\w'&-]{0,40}"
_PROPER = rf"(?P<value>(?:the )?{_CAPITAL}(?:,? (?:of |& )?{_CAPITAL}){{0,4}})"
_AM = r"\bI(?:'m| am)"
_VERY = r"(?:(?:really|absolutely|just|also|do|much|still|totally|always|strongly|honestly) ){0,2}"
_KIN = (
    r"(?P<relation>wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|son|daughter|brother|sister|mother|mom|mum|"
    r"father|dad|grandma|grandmother|grandpa|grandfather|dog|cat|puppy|kitten|boss|manager|roommate|best friend)"
)
_COMPANY = (
    r"dogs?|cats?|pupp(?:y|ies)|kittens?|pets?|kids?|child(?:ren)?|sons?|daughters?|brothers?|sisters?|siblings?|"
    r"turtles?|guinea pigs?|rabbits?|horses?"
)
_COUNT = r"(?:an?|one|two|three|four|five|\d{1,2})"
_EVENT = (
    r"went to|went on|visited|started|joined|bought|adopted|met|finished|signed up for|attended|quit|lost|won|"
    r"graduated from|moved to|launched|opened|published|submitted|completed|ran|signed|got a|got an|took a|had a|"
    r"had an|gave a|went"
)
_CONCRETE = r"(?P<value>(?=[^,;:()]{0,60}(?:\d|(?-i:[A-Z])))[^,;:()]{2,80})"
_OCCUPATION = (
    r"(?!(?:better|closer|winner|number|other|later|over|under|never|ever|for|matter|longer|newer|older|or|member|order)\b)"
    r"(?:\w{2,30}(?:er|or|ist|ian|eer)|nurse|chef|student|coach|vegan|lawyer|pilot|architect)"
)
_STATUS = (
    r"(?:a )?(?:vegan|vegetarian|single|married|divorced|retired|pregnant|lactose intolerant|left-handed|diabetic|deaf)"
)
_ATTRIBUTE = (
    r"birthday|e-?mail(?: address)?|phone number|address|time ?zone|job|major|native language|hobby|nickname|pronouns"
)
# fmt: off
_RULES: tuple[_Rule, ...] = (  # pattern, predicate, fact, confidence
    _rule(rf"\bmy name(?:'s| is) {_PROPER}", "name", "{who}'s name is {value}", 0.95),
    _rule(rf"{_AM} (?P<value>\d{{1,3}}) years old\b", "age", "{who} is {value} years old", 0.9),
    _rule(rf"(?:{_AM}|\bI come) (?:originally )?from {_PROPER}", "from", "{who} is from {value}", 0.9),
    _rule(rf"\bI (?:currently )?live in {_PROPER}", "lives_in", "{who} lives in {value}", 0.9),
    _rule(rf"\bI(?:'ve)? (?:just |recently )?moved to {_PROPER}", "lives_in", "{who} moved to {value}", 0.8),
    _rule(rf"\bI work (?:at|for) {_PROPER}", "employer", "{who} works at {value}", 0.9),
    _rule(r"\bI work as (?P<value>an? [^,;:()]{2,60})", "occupation", "{who} works as {value}", 0.9),
    _rule(rf"{_AM} (?P<value>an? (?!bit |little |lot )(?:[\w-]+ ){{0,2}}?{_OCCUPATION})"
          r"(?=$|[.!,;]| (?:at|in|for|from|with|and|who|by|now|too)\b)", "is_a", "{who} is {value}", 0.8),
    _rule(rf"{_AM} (?P<value>{_STATUS})\b", "is", "{who} is {value}", 0.85),
    _rule(rf"{_AM} allergic to {_VALUE}", "allergic_to", "{who} is allergic to {value}", 0.95),
    _rule(rf"\bmy {_KIN}(?:'s name is | is named | is called |, | is )(?P<value>{_CAPITAL})",
          "has_{relation}", "{who}'s {relation} is {value}", 0.85),
    _rule(rf"\bmy {_KIN} (?:is|works as) (?P<value>an? [^,;:()]{{2,80}})",
          "{relation}", "{who}'s {relation} is {value}", 0.75),
    _rule(rf"\bI(?:'ve got| have) (?P<value>{_COUNT} (?:\w{{1,20}} )?(?:{_COMPANY})(?: (?:named|called) {_CAPITAL}"
          rf"(?: and {_CAPITAL})?)?)(?=$|[.!,;]| (?:and|who|at home|now|too)\b)", "has", "{who} has {value}", 0.9),
    _rule(r"\bmy (?:all-time )?fav(?:e|ou?rite)? (?P<relation>(?!one|part|thing|of)[\w ]{2,30}?) "
          rf"(?:is|are) {_VALUE}",
          "favourite_{relation}", "{who}'s favourite {relation} is {value}", 0.9),
    _rule(rf"\bmy (?P<relation>{_ATTRIBUTE}) (?:is|are) (?!to\b|not\b|so\b|very\b|really\b|hard\b){_VALUE}",
          "{relation}", "{who}'s {relation} is {value}", 0.85),
    _rule(rf"\bI {_VERY}prefer {_VALUE}", "prefers", "{who} prefers {value}", 0.9),
    _rule(rf"\bI {_VERY}(?:love|adore) {_VALUE}", "loves", "{who} loves {value}", 0.8),
    _rule(rf"\bI {_VERY}(?:hate|detest|can't stand|cannot stand) {_VALUE}", "hates", "{who} hates {value}", 0.8),
    _rule(rf"\bI {_VERY}(?:don't|do not) (?:really )?(?:like|enjoy) {_VALUE}",
          "dislikes", "{who} does not like {value}", 0.8),
    _rule(rf"\bI {_VERY}(?:like|enjoy) {_VALUE}", "likes", "{who} likes {value}", 0.75),
    _rule(rf"(?:{_AM}|\bI've been) learning {_VALUE}", "is_learning", "{who} is learning {value}", 0.75),
    _rule(rf"(?:^|[,;] |\b(?:please|and|can you|need you to) )remind me to {_VALUE}",
          "reminder", "{who} wants to be reminded to {value}", 0.8),
    _rule(rf"\bI (?:(?:really |still )?(?:have|need) to|must(?! have\b)) {_VALUE}",
          "has_to", "{who} has to {value}", 0.6),
    _rule(rf"{_AM} (?:going to|gonna|planning to) {_VALUE}",
          "plans", "{who} plans to {value}", 0.7, tense="future"),
    _rule(r"\bI have (?P<value>an? (?:\w{1,20} )?(?:appointment|interview|meeting|exam|flight|deadline|date|trip|"
          r"competition|tournament|game|show|test) [^,;:()]{2,100})",
          "has_appointment", "{who} has {value}", 0.75, tense="future"),
    _rule(rf"\bI (?:just |finally |also |recently )?(?P<relation>{_EVENT}) {_VALUE}",
          "{relation}", "{who} {relation} {value}", 0.75, tense="past"),
    _rule(rf"\b(?:no, I meant?|I meant to say) {_VALUE}", "corrected", "{who} corrected: {value}", 0.6),
    _rule(rf"\bactually,? it(?:'s| is) {_CONCRETE}", "corrected", "{who} corrected: it is {value}", 0.5),
    _rule(r"\bactually,? my (?P<relation>[\w ]{2,30}?) is (?!not\b)(?P<value>[^,;:()]{2,80})",
          "{relation}", "{who}'s {relation} is {value}", 0.7),
    _rule(r"(?:^|\b(?:it's|it is|that's|is|was) )not (?P<relation>(?:\w[\w.'-]{0,30} ){0,3}?\w[\w.'-]{0,30}),? but "
          rf"(?!also\b|only\b){_CONCRETE}", "corrected", "{who} corrected: not {relation} but {value}", 0.55),
)
# fmt: on

_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bSt\.)\s+|\n+"
)
_FIRST_PERSON = re.compile(r"\b(?:I|my|me|actually|not)\b", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:if|would|might|could|should|maybe|perhaps|wish|imagine|pretend|suppose|unless|in case|hypothetically|"
    r"not true|isn't true|doesn't mean|don't think|never said|kidding|joking|for example|as though|no way)\b",
    re.IGNORECASE,
)
# What precedes the statement says that it is reported, asked, or somebody else's.
_REPORTED = re.compile(
    r"\b(?:sa(?:id|ys)|told|tells|asked|asks|claims?|claimed|sings?|lyrics|quote[sd]?|reads|wrote|thinks?)\b"
    r"|\b(?:what|why|how|where|who|whom|which|whether|when|whenever|than|that|as|until|once|things?|way|one|reason)\s*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“«][^\"”»]{0,400}[\"”»]")
# A pointer to something outside the statement: nobody understands it later.
_VAGUE = re.compile(
    r"\b(?:it|it's|its|that|that's|this|them|those|these|you|your|yours|you're|you've|here|there|him|his|her|hers|he|"
    r"she|they|their|they're|theirs|such|another|others|same)\b"
    r"|^(?:how|what|when|why|where|the way|one|some|being able|both|all|everything|everyone|so|every|to see|is|are|was|"
    r"were|a ton|a lot|a bunch)\b|^to$",
    re.IGNORECASE,
)
# "The" points at something mentioned before, unless it is a name or one of a kind.
_POINTING = re.compile(
    r"^(?:the|most|a|an) (?!(?:beach|outdoors|ocean|sea|mountains|forest|snow|sun|theat|cinema|city|countryside|piano|"
    r"violin|guitar|idea of)\b)(?!.*[A-Z\"])"
)
_TASTES = frozenset({"loves", "likes", "hates", "dislikes"})
_IDLE_DUTY = re.compile(r"^(?:say|admit|agree|confess|ask|know|tell|go$|be\b|see|think|try|keep)", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"\s(?:but|because|cause|so|and (?:I|it|we|my|then|the|have|am|was|had|that)|which|since|when|while|whenever|"
    r"although|though|even|especially|as|after|before|until|who)\b|\s[-–—]+\s?|--|—|\.\.|…| - "
)
_FILLER = re.compile(
    r"(?:^(?:both|just|also) |[\s,]+(?:too|as well|so much|a lot|right now|though|lol|haha|anymore|most|more|the most|"
    r"the best|now|these days|and all|and stuff|and more|very much|myself|again)$)",
    re.IGNORECASE,
)
_THIRD_PERSON = {
    "my": "their", "mine": "theirs", "our": "their", "ours": "theirs", "me": "them", "us": "them", "i": "they",
    "we": "they", "i'm": "they are", "we're": "they are", "i've": "they have", "we've": "they have",
    "myself": "themself", "ourselves": "themselves", "am": "are"
}  # fmt: skip
_FIRST_PERSON_WORD = re.compile(
    rf"(?<![\w'])(?:{'|'.join(sorted(_THIRD_PERSON, key=len, reverse=True))})(?![\w'])", re.I
)


def _facts(interaction: Interaction, content: str) -> Iterator[FactDraft]:
    """The facts of a text, each once."""
    who = _speaker(interaction)
    if who is None:
        return
    seen: set[str] = set()
    for sentence in islice(_sentences(content), MAX_SENTENCES):
        for draft in _of_sentence(sentence, who, interaction.occurred_at):
            if draft.fact not in seen:
                seen.add(draft.fact)
                yield draft


def _speaker(interaction: Interaction) -> str | None:
    """Whom "I" means. What a tool or a web page says in the first person is nobody's."""
    if interaction.role not in {"user", "assistant"}:
        return None
    if interaction.speaker and (name := " ".join(interaction.speaker.split())):
        return name[:MAX_SUBJECT_LENGTH]
    is_chat = interaction.role == "user" and interaction.event_type is EventType.CONVERSATION
    return "User" if is_chat else None


def _sentences(content: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(content.replace("’", "'")):
        sentence = " ".join(part.split())
        if 0 < len(sentence) <= MAX_SENTENCE_LENGTH and _FIRST_PERSON.search(sentence):
            yield sentence


def _of_sentence(sentence: str, who: str, now: datetime) -> Iterator[FactDraft]:
    """At most one fact per rule; questions and hypotheticals state nothing."""
    is_open_quote = sentence.count('"') % 2 == 1  # a quotation of several sentences
    if is_open_quote or sentence.rstrip("\"')”!. ").endswith("?") or _HEDGE.search(sentence):
        return
    quoted = [match.span() for match in _QUOTED.finditer(sentence)]
    for rule in _RULES:
        match = rule.pattern.search(sentence)
        if match is None or any(start <= match.start() < end for start, end in quoted):
            continue
        if not _REPORTED.search(sentence[: match.start()]) and (draft := _draft(rule, match, who, now)):
            yield draft


def _draft(rule: _Rule, match: re.Match[str], who: str, now: datetime) -> FactDraft | None:
    """The fact of one match; ``None`` where it would not stand on its own."""
    value = _trimmed(match)
    if not _is_clear(rule, value):
        return None
    value, when = resolved(_FIRST_PERSON_WORD.sub(_in_third_person, value), now)
    if rule.tense and when is None and (when := resolved(match.string[: match.start()], now)[1]):
        value = f"{value} {when.words}"
    if rule.tense and not _is_dated(rule, value, when, now):
        return None
    relation = (match.groupdict().get("relation") or "").strip()
    fact = rule.template.format(who=who, value=value, relation=relation)
    # A plan's date lies ahead, and says nothing about when planning began.
    valid_from = when.start if rule.tense == "past" and when else None
    predicate = _snake(rule.predicate.format(relation=relation), MAX_PREDICATE_LENGTH)
    draft = FactDraft(
        fact=fact, subject=who, predicate=predicate, object=value, confidence=rule.confidence, valid_from=valid_from
    )
    return draft if len(fact) <= MAX_FACT_LENGTH else None


def _is_dated(rule: _Rule, value: str, when: When | None, now: datetime) -> bool:
    """Whether the date fits the rule; one right after the verb usually belongs to another clause."""
    if when is None or value.startswith(when.words):
        return False
    return when.start <= now if rule.tense == "past" else when.start + timedelta(days=1) > now


def _trimmed(match: re.Match[str]) -> str:
    """The value without the next clause and what trails it; '' where the pattern's limit cut it off."""
    if match.string[match.end() : match.end() + 1].isalnum():
        return ""
    value = _CLAUSE_END.split(match["value"], maxsplit=1)[0].strip(" .!?-—*~'")
    return _FILLER.sub("", _FILLER.sub("", value)).strip(" .!")


def _is_clear(rule: _Rule, value: str) -> bool:
    if not any(character.isalnum() for character in value) or _VAGUE.search(value):
        return False
    if rule.predicate in _TASTES:
        return not _POINTING.match(value)
    return rule.predicate != "has_to" or (not _IDLE_DUTY.match(value) and " " in value)


def _in_third_person(match: re.Match[str]) -> str:
    return _THIRD_PERSON[match.group().casefold()]


def _snake(text: str, limit: int) -> str:
    return "_".join(re.findall(r"\w+", text.casefold()))[:limit]


# ---- skills

_GOAL = r"(?P<goal>[a-z][^,.:;?!\n]{3,80})"
_HOW_TO = re.compile(
    rf"\b(?:how )?to {_GOAL}[,:]\s?(?:you )?(?P<steps>(?:first|start by|1[.)])[ ,][^\n]{{5,1500}})", re.IGNORECASE
)
_LISTED = re.compile(  # a goal, and its steps as a numbered list
    rf"(?:^|\n|\bto ){_GOAL}:\s{{0,4}}(?P<steps>1[.)] [^\n]{{2,300}}(?:\n ?\d{{1,2}}[.)] [^\n]{{2,300}}){{1,19}})",
    re.IGNORECASE,
)
_BY_STEPS = re.compile(  # "Fixed the build by clearing the cache, then ..."
    r"^(?P<goal>[a-z][^,.:;?!\n]{3,80}?)(?: by |: )(?P<steps>[^\n]{5,1500}?(?:,| and|;) then [^\n]{3,500})",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?:[,;.]\s{0,4}|\s{1,4})(?:and )?(?:then|next|after that|finally|lastly|second|third)\b,?\s{1,4}|"
    r"\s{1,4}\d{1,2}[.)]\s{1,4}",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^(?:first(?:ly)?,? |start by |1[.)] )", re.IGNORECASE)
_WORK = (EventType.ACTION, EventType.OUTCOME)


def _skills(interaction: Interaction, content: str) -> Iterator[SkillDraft]:
    """A how-to with its steps, counted by the interaction's outcome; a tool's or a page's recipe teaches nothing."""
    if interaction.role not in {"user", "assistant"} or interaction.event_type is EventType.OBSERVATION:
        return
    match = _LISTED.search(content) or _HOW_TO.search(content)
    if match is None and interaction.event_type in _WORK:
        match = _BY_STEPS.search(content)
    if match is not None and len(steps := _steps(match["steps"])) > 1:
        yield SkillDraft(
            skill_name=_snake(" ".join(match["goal"].split()[:6]), SKILL_NAME_MAX_LENGTH) or "skill",
            trigger_pattern=match["goal"].strip(),
            policy={"steps": steps},
            successes=int(interaction.outcome is Outcome.SUCCESS),
            failures=int(interaction.outcome is Outcome.FAILURE),
            reward=interaction.reward,
        )


def _steps(text: str) -> list[str]:
    parts = (part.strip(" .,;\n") for part in _STEP.split(_LEAD.sub("", text)))
    return [part for part in parts if part][:MAX_STEPS]


# ---- the whole

_OBLIGATION = re.compile(
    r"\b(?:I (?:have|need) to|I must(?! (?:have|be)\b)|remind me|don't forget|deadline)\b", re.IGNORECASE
)
_CORRECTION = re.compile(
    r"\b(?:no, I mean|I meant\b|I misspoke|correction:|let me correct|that was wrong|made a mistake|"
    r"actually,? (?:it's|it is|I|my)\b)",
    re.IGNORECASE,
)
_BASE = {EventType.CONVERSATION: 0.45, EventType.OBSERVATION: 0.45, EventType.ACTION: 0.5, EventType.OUTCOME: 0.6}
_OUTCOME_BONUS = {Outcome.SUCCESS: 0.1, Outcome.FAILURE: 0.2, Outcome.PARTIAL: 0.1, Outcome.UNKNOWN: 0.0}


class RuleClassifier:
    """The Classifier port over these rules."""

    async def classify(self, interactions: Sequence[Interaction]) -> list[Classification]:
        return [classify(interaction) for interaction in interactions]


class DeferringClassifier:
    """The same for writes that a model reads later: they get an importance for now, and are marked."""

    async def classify(self, interactions: Sequence[Interaction]) -> list[Classification]:
        return [replace(classify(each), facts=each.facts, skills=(), complete=not each.infer) for each in interactions]


def classify(interaction: Interaction) -> Classification:
    """Importance, facts and skills of one interaction. Never raises."""
    content = interaction.content[:MAX_CONTENT]
    found = tuple(islice(_facts(interaction, content), MAX_FACTS)) if interaction.infer else ()
    skills = tuple(_skills(interaction, content)) if interaction.infer else ()
    importance = interaction.importance
    if importance is None:
        importance = _importance(interaction, content, len(found))
    return Classification(importance=importance, facts=(*interaction.facts, *found), skills=skills)


def _importance(interaction: Interaction, content: str, facts: int) -> float:
    """Chit-chat stays in a narrow band, so that importance cannot swamp relevance."""
    score = _BASE[interaction.event_type] + 0.05 * min(2, facts) + _weight_of(content)
    if interaction.outcome is None and interaction.event_type is EventType.CONVERSATION:
        low, high = CHAT_BAND
        return round(min(high, max(low, score)), 3)
    bonus = _OUTCOME_BONUS[interaction.outcome] if interaction.outcome else 0.0
    return round(min(1.0, max(0.0, score + bonus)), 3)


def is_correction(content: str) -> bool:
    """Whether the text takes back what was said before."""
    return _CORRECTION.search(content) is not None


def _weight_of(content: str) -> float:
    """What the text itself adds: duties and corrections weigh more, a greeting less. No word asks for more."""
    words = len(content[:2_000].split())
    weight = -0.05 if words < 4 else 0.02 if words > 40 else 0.0
    weight += 0.05 if _OBLIGATION.search(content) else 0.0
    return weight + (0.05 if is_correction(content) else 0.0)
