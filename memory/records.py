"""Records: what is remembered, and the words for it.

All records are immutable. Times are timezone-aware UTC datetimes, vectors are float32 arrays of unit length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NewType
from uuid import UUID

TenantId = NewType("TenantId", str)
AgentId = NewType("AgentId", str)
UserId = NewType("UserId", str)
SessionId = NewType("SessionId", str)
MemoryId = NewType("MemoryId", UUID)
Partition = NewType("Partition", int)

ID_MAX_LENGTH = 64  # characters, the width of the id columns
SKILL_NAME_MAX_LENGTH = 128


class Tier(StrEnum):
    """The four memory tiers of the specification."""

    WORKING = "working"
    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"


class EventType(StrEnum):
    CONVERSATION = "conversation"
    ACTION = "action"
    OBSERVATION = "observation"
    OUTCOME = "outcome"


class Trust(StrEnum):
    """Whose word a write is: the trust of the channel that it came through, as its caller says."""

    SYSTEM = "system"  # the application's own: its database, its operators
    USER = "user"  # the user whom the agent serves, or the agent speaking with that user
    TOOL = "tool"  # what a tool returned
    EXTERNAL = "external"  # anybody's: web pages, mail, documents of strangers


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


class RetentionTier(StrEnum):
    """How long a memory is kept, counted from the moment it was recorded."""

    TRANSIENT = "transient"
    SESSION = "session"
    SHORT_TERM = "short_term"
    MEDIUM_TERM = "medium_term"
    LONG_TERM = "long_term"
    PERMANENT = "permanent"


#: Specification, "Privacy and Data Retention": six retention tiers; ``None`` never expires.
RETENTION_PERIODS: Mapping[RetentionTier, timedelta | None] = {
    RetentionTier.TRANSIENT: timedelta(hours=1),
    RetentionTier.SESSION: timedelta(hours=24),
    RetentionTier.SHORT_TERM: timedelta(days=7),
    RetentionTier.MEDIUM_TERM: timedelta(days=90),
    RetentionTier.LONG_TERM: timedelta(days=365),
    RetentionTier.PERMANENT: None,
}


def expires_at(recorded_at: datetime, tier: RetentionTier) -> datetime | None:
    """When a memory recorded at ``recorded_at`` leaves; ``None`` for a permanent one.

    Retention counts from the recording, not from the event: an imported conversation of last year
    would otherwise be gone before anyone could read it.
    """
    period = RETENTION_PERIODS[tier]
    return None if period is None else recorded_at + period


class ExtractionState(StrEnum):
    """Whether facts and skills were taken from an episode."""

    DONE = "done"
    PENDING = "pending"  # a model has not read it yet; the built-in rules may have
    FAILED = "failed"  # no model could read it, the rules did
    OFF = "off"  # stored as given


class FactScope(StrEnum):
    """Who a fact is about, and so which namespace it lives in."""

    USER = "user"
    AGENT = "agent"
    WORLD = "world"


def namespace_of(scope: FactScope, user_id: UserId) -> str:
    """The namespace a fact of ``scope`` lives in: ``user:<id>``, ``agent`` or ``world``."""
    return f"user:{user_id}" if scope is FactScope.USER else scope.value


@dataclass(frozen=True, kw_only=True, slots=True)
class FactDraft:
    """A self-contained statement that somebody extracted or supplied, not stored yet."""

    fact: str  # the statement, understandable without its source
    subject: str | None = None  # whom or what it is about
    predicate: str | None = None  # relation, snake_case
    object: str | None = None  # value of the relation
    confidence: float = 0.7  # 0.0 - 1.0
    scope: FactScope = FactScope.USER
    valid_from: datetime | None = None  # when it became true, if said


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillDraft:
    """A reusable pattern that was learned or supplied, not stored yet."""

    skill_name: str
    trigger_pattern: str  # when the skill applies, in words
    policy: Mapping[str, Any]  # learned parameters or steps
    tool_sequence: Sequence[Any] | None = None  # ordered tool calls
    successes: int = 0  # outcomes that came with the draft
    failures: int = 0
    reward: float | None = None  # reward of that outcome, any real number


@dataclass(frozen=True, kw_only=True, slots=True)
class Interaction:
    """One accepted write, as it travels through the ingest stream."""

    id: MemoryId  # UUIDv7; becomes the id of the episode
    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId
    session_id: SessionId
    content: str  # non-blank, secrets already redacted
    accepted_at: datetime  # when the API accepted it
    occurred_at: datetime  # when it happened; the episode's created_at
    event_type: EventType = EventType.CONVERSATION
    speaker: str | None = None  # who said it, if known
    role: str = "user"  # chat role for ready-to-send messages
    outcome: Outcome | None = None
    importance: float | None = None  # 0.0 - 1.0; None lets the classifier decide
    retention_tier: RetentionTier | None = None  # None takes the agent's default
    metadata: Mapping[str, Any] = field(default_factory=dict)
    infer: bool = True  # False stores the episode as given and extracts nothing
    facts: Sequence[FactDraft] = ()  # facts the caller supplied itself
    skill: str | None = None  # name of the skill this interaction applied
    reward: float | None = None  # reward of applying that skill
    idempotency_key: str | None = None
    trust: Trust = Trust.USER  # of the channel, never of the text
    reply_to: str | None = None  # channel of the replica that waits for the outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification:
    """What a classifier found in one interaction."""

    importance: float  # 0.0 - 1.0
    facts: Sequence[FactDraft] = ()
    skills: Sequence[SkillDraft] = ()
    quarantined: Sequence[FactDraft] = ()  # facts that are kept and not believed
    complete: bool = True  # False: the episode is kept and marked for later extraction
    origin: str = "rules"  # what found them: the built-in rules, or a model and its prompt's version


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkingMessage:
    """One message of a session's working memory."""

    id: MemoryId
    role: str
    speaker: str | None
    content: str
    occurred_at: datetime
    event_type: EventType = EventType.CONVERSATION


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkingMemory:
    """A session's working memory; messages oldest first."""

    messages: Sequence[WorkingMessage] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning: Any = None  # intermediate reasoning state, any JSON value
    spilled: int = 0  # messages that left because of the session's bounds; they remain episodes
    summary: str | None = None  # of messages that left, as far as they are summarised yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """One stored memory of any tier, as read paths return it."""

    id: MemoryId
    tier: Tier
    agent_id: AgentId
    content: str  # the episode's text, the fact, or the skill's trigger and steps
    created_at: datetime  # when it happened (episodes) or was learned
    recorded_at: datetime  # when it was stored
    importance: float  # importance, confidence or success rate, by tier; 0.0 - 1.0
    revision: int  # the agent's revision that wrote it last
    user_id: UserId | None = None
    session_id: SessionId | None = None
    namespace: str | None = None  # facts and skills
    event_type: EventType | None = None
    speaker: str | None = None
    outcome: Outcome | None = None
    access_count: int = 0
    last_accessed_at: datetime | None = None
    expires_at: datetime | None = None
    source_ids: Sequence[MemoryId] = ()  # episodes it was derived from
    details: Mapping[str, Any] = field(default_factory=dict)  # tier-specific columns
    metadata: Mapping[str, Any] = field(default_factory=dict)


class WriteState(StrEnum):
    """How an accepted write ended; ``PENDING`` is not in the ledger yet."""

    PENDING = "pending"
    STORED = "stored"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    DEAD_LETTERED = "dead_lettered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """The end of one accepted write, as the ledger keeps it."""

    operation_id: MemoryId
    state: WriteState
    reason: str | None = None  # why it was rejected, dead-lettered, or of what it is a duplicate
    memory_ids: Sequence[MemoryId] = ()  # episode first, then facts and skills
    attempts: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentProfile:
    """An agent's own settings; anything not set follows the system's defaults."""

    tenant_id: TenantId
    agent_id: AgentId
    team: str | None = None
    revision: int = 0
    scoring: Mapping[str, float] = field(default_factory=dict)  # ScoringWeights overrides
    budget_ratios: Mapping[str, float] = field(default_factory=dict)  # tier -> share of the budget
    retention: Mapping[str, str] = field(default_factory=dict)  # event type -> retention tier
