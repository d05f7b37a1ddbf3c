"""What the API answers, as frozen dataclasses. Fields that a newer server adds are ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """An accepted write: pending until it is stored, duplicate, rejected or dead-lettered."""

    id: UUID  # becomes the memory's id
    operation_id: str  # for ``operation`` and ``wait_until_settled``
    state: str  # pending, stored, duplicate, rejected or dead_lettered
    duplicate: bool = False  # the idempotency key was seen before
    memory_ids: Sequence[UUID] = ()  # what was stored, once it is
    reason: str | None = None  # why it was rejected


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Why one item of a batch was refused."""

    status: int  # the HTTP status it would have had alone
    code: str  # stable, for programs
    detail: str  # for people
    title: str = ""
    type: str = "about:blank"
    errors: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchItem:
    """Exactly one of the two is set."""

    accepted: Accepted | None = None
    problem: Problem | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAccepted:
    items: Sequence[BatchItem]  # one per item, in order


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A stored memory of any tier."""

    id: UUID
    tier: str  # working, episodic, semantic or procedural
    agent_id: str
    content: str
    importance: float
    created_at: datetime  # when it happened
    recorded_at: datetime  # when it was stored
    revision: int  # the agent's revision that wrote it last
    user_id: str | None = None
    session_id: str | None = None
    namespace: str | None = None  # facts and skills
    event_type: str | None = None
    speaker: str | None = None
    outcome: str | None = None
    access_count: int = 0
    last_accessed_at: datetime | None = None
    expires_at: datetime | None = None  # None never expires
    source_ids: Sequence[UUID] = ()  # episodes it was derived from
    details: Mapping[str, Any] = field(default_factory=dict)  # by tier
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the caller's own


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPage:
    items: Sequence[Memory]  # newest first
    next_cursor: str | None = None  # None on the last page


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEvent:
    """One change of a memory."""

    event: str  # created, updated or superseded
    revision: int
    at: datetime
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The five factors, each in [0, 1] before its weight, and the weighted total."""

    relevance: float
    recency: float
    importance: float
    frequency: float
    type_bonus: float
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    memory: Memory
    score: Score


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    hits: Sequence[Hit]  # best first
    revision: int  # of the agent, when it was searched
    resident: bool = False  # whether all memories were ranked, or the nearest candidates


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextItem:
    """A memory as it appears in the context."""

    memory: Memory
    text: str
    tokens: int
    summarised: bool
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TierUsage:
    """Tokens of one tier."""

    allocated: int
    used: int
    dropped: int  # memories that did not fit


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Ready-to-send messages and the items they are made of, never above the budget."""

    items: Sequence[ContextItem]
    messages: Sequence[Message]
    tokens_used: int
    tokens_available: int
    dropped: int
    tiers: Mapping[str, TierUsage]
    earlier: str | None = None  # what left the session's working memory, summarised


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """Procedural memory."""

    id: UUID
    agent_id: str
    namespace: str
    skill_name: str
    trigger_pattern: str  # when it applies
    policy: Mapping[str, Any]
    tool_sequence: Sequence[Any] | None
    success_count: int
    failure_count: int
    success_rate: float
    avg_reward: float
    version: int
    created_at: datetime
    updated_at: datetime
    revision: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillList:
    items: Sequence[Skill]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkingMessage:
    """A message of a session."""

    id: UUID
    role: str
    speaker: str | None
    content: str
    occurred_at: datetime
    event_type: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Working memory."""

    messages: Sequence[WorkingMessage]  # oldest first
    variables: Mapping[str, Any]
    spilled: int  # messages that left because of the bounds; they remain episodes
    reasoning: Any = None
    summary: str | None = None  # of messages that left, as far as they are summarised yet


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent's own settings."""

    agent_id: str
    team: str | None
    revision: int
    scoring: Mapping[str, float]
    budget_ratios: Mapping[str, float]
    retention: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """How an accepted write ended, or that it is pending."""

    operation_id: str
    id: UUID
    state: str  # pending, stored, duplicate, rejected or dead_lettered
    reason: str | None = None
    memory_ids: Sequence[UUID] = ()
    attempts: int = 0
    settled_at: datetime | None = None

    @property
    def settled(self) -> bool:
        return self.state != "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Totals of the tenant's writes; ``accepted`` equals the sum of the others when ``reconciled``."""

    accepted: int
    pending: int
    stored: int
    duplicate: int
    rejected: int
    dead_lettered: int
    reconciled: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A write that failed too often; it can be replayed or dropped."""

    id: UUID
    agent_id: str
    attempts: int
    error: str
    content: str
    failed_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterPage:
    items: Sequence[DeadLetter]  # oldest first
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Deleted:
    deleted: int
