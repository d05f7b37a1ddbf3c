"""Bodies of the HTTP API: what is accepted, and what comes back."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from memory.records import (
    ID_MAX_LENGTH,
    SKILL_NAME_MAX_LENGTH,
    EventType,
    FactScope,
    Outcome,
    RetentionTier,
    Tier,
    Trust,
    WriteState,
)

CONTENT_MAX_LENGTH = 65_536  # characters
QUERY_MAX_LENGTH = 8_192
BATCH_MAX = 500
TOP_K_MAX = 200


def _storable(text: str) -> str:
    """PostgreSQL stores neither NUL characters nor lone surrogates; refuse them where they arrive."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters (U+0000)")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("must not contain lone surrogates (U+D800 to U+DFFF)") from None
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty or blank")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must contain printable characters only")
    return text


def _storable_json(value: Any) -> Any:
    """Every string in a JSON value must be storable, and every number finite."""
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite")
    if isinstance(value, dict):
        return {_storable(key): _storable_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable_json(item) for item in value]
    return value


def _offset_said(value: Any) -> Any:
    """Numbers and naive times are refused: nobody can tell which moment they mean."""
    if isinstance(value, str | datetime):
        return value
    raise ValueError("must be an RFC 3339 timestamp with an offset, such as 2026-03-01T09:30:00+01:00")


def _in_range(value: datetime) -> datetime:
    if not 1900 <= value.year <= 2200:
        raise ValueError("must lie between the years 1900 and 2200")
    return value.astimezone(UTC)


Identifier = Annotated[
    str,
    Field(min_length=1, max_length=ID_MAX_LENGTH),
    AfterValidator(_storable),
    AfterValidator(_not_blank),
    AfterValidator(_printable),
]
Content = Annotated[
    str, Field(min_length=1, max_length=CONTENT_MAX_LENGTH), AfterValidator(_storable), AfterValidator(_not_blank)
]
Query = Annotated[
    str, Field(min_length=1, max_length=QUERY_MAX_LENGTH), AfterValidator(_storable), AfterValidator(_not_blank)
]
Json = Annotated[JsonValue, AfterValidator(_storable_json)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_storable_json)]
Timestamp = Annotated[AwareDatetime, BeforeValidator(_offset_said), AfterValidator(_in_range)]
Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
SkillName = Annotated[
    str, Field(min_length=1, max_length=SKILL_NAME_MAX_LENGTH), AfterValidator(_storable), AfterValidator(_not_blank)
]
Reward = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Label = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_storable), AfterValidator(_not_blank)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FactIn(_Body):
    """A fact that the caller extracted itself."""

    fact: Annotated[Content, Field(max_length=4096)]
    subject: Annotated[Content, Field(max_length=256)] | None = None
    predicate: Annotated[Content, Field(max_length=128)] | None = None
    object: Annotated[Content, Field(max_length=4096)] | None = None
    confidence: Unit = Field(0.7, description="limited by the trust of the write's channel")
    scope: FactScope = FactScope.USER
    valid_from: Timestamp | None = None


class MemoryIn(_Body):
    """One interaction to remember."""

    content: Content
    user_id: Identifier = Field(description="the user whom the agent served")
    session_id: Identifier = Field("default", description="the conversation it belongs to")
    event_type: EventType = EventType.CONVERSATION
    role: Literal["user", "assistant", "system", "tool"] = "user"
    speaker: Label | None = Field(None, description="who said it, by name")
    trust: Trust = Field(
        Trust.USER,
        description="the channel it came through; facts from tool and external may go into quarantine",
    )
    outcome: Outcome | None = None
    importance: Unit | None = Field(None, description="left out, the classifier decides, within the channel's limit")
    retention_tier: RetentionTier | None = None
    occurred_at: Timestamp | None = Field(None, description="RFC 3339 with offset; left out, now")
    metadata: JsonObject = Field(default_factory=dict)
    infer: bool = Field(True, description="false stores the episode as given and extracts nothing")
    facts: list[FactIn] = Field(default_factory=list, max_length=64)
    skill: SkillName | None = Field(None, description="the skill that this interaction applied")
    reward: Reward | None = None
    idempotency_key: Annotated[Content, Field(max_length=256)] | None = None


class WriteOptions(_Body):
    wait: Literal["accepted", "persistent"] = Field(
        "accepted", description="persistent answers once the row is committed"
    )
    durability: Literal["default", "fsync"] = Field("default", description="fsync waits until the write is on disk")


class MemoryWrite(MemoryIn, WriteOptions):
    """Body of POST memories."""


class BatchWrite(WriteOptions):
    """Body of POST memories/batch; items are accepted or refused one by one."""

    items: list[MemoryIn] = Field(min_length=1, max_length=BATCH_MAX)


class Accepted(BaseModel):
    """Answer to a write: 202 while pending, 201 when committed, 200 for a repeated idempotency key."""

    id: UUID
    operation_id: str
    state: WriteState
    duplicate: bool = False
    memory_ids: list[UUID] = Field(default_factory=list)
    reason: str | None = None


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: list[dict[str, Any]] | None = None


class BatchItem(BaseModel):
    accepted: Accepted | None = None
    problem: Problem | None = None


class BatchAccepted(BaseModel):
    """One entry per item, in order."""

    items: list[BatchItem]


class MemoryPatch(_Body):
    """Fields to change; what is left out stays. ``content`` re-embeds and re-derives."""

    content: Content | None = None
    importance: Unit | None = None
    outcome: Outcome | None = None
    retention_tier: RetentionTier | None = None
    metadata: JsonObject | None = None


class MemoryOut(BaseModel):
    """A stored memory of any tier."""

    id: UUID
    tier: Tier
    agent_id: str
    user_id: str | None = None
    session_id: str | None = None
    namespace: str | None = None
    content: str
    event_type: EventType | None = None
    speaker: str | None = None
    outcome: Outcome | None = None
    importance: float
    access_count: int = 0
    last_accessed_at: datetime | None = None
    created_at: datetime
    recorded_at: datetime
    expires_at: datetime | None = None
    revision: int
    source_ids: list[UUID] = Field(default_factory=list)
    details: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)


class MemoryPage(BaseModel):
    items: list[MemoryOut]
    next_cursor: str | None = None


class HistoryEvent(BaseModel):
    event: Literal["created", "updated", "superseded"]
    revision: int
    at: datetime
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class WeightsIn(_Body):
    """Overrides of the scoring weights."""

    relevance: Unit | None = None
    recency: Unit | None = None
    importance: Unit | None = None
    frequency: Unit | None = None
    type_bonus: Unit | None = None
    half_life_days: Annotated[float, Field(gt=0, le=36500, allow_inf_nan=False)] | None = None


class SearchIn(_Body):
    """A question to the agent's memory."""

    query: Query
    user_id: Identifier = Field(description="the user whom the agent serves now")
    session_id: Identifier | None = Field(None, description="adds this session's working memory")
    top_k: int = Field(20, ge=1, le=TOP_K_MAX)
    tiers: list[Tier] | None = Field(None, min_length=1, max_length=4)
    since: Timestamp | None = None
    until: Timestamp | None = None
    now: Timestamp | None = Field(None, description="when the question is asked; 'last week' and recency count from it")
    similarity_floor: Unit | None = None
    weights: WeightsIn | None = None


class TenantSearchIn(_Body):
    """A question to the memories of all agents."""

    query: Query
    agents: list[Identifier] | None = Field(None, min_length=1, max_length=1000, description="only these agents'")
    top_k: int = Field(20, ge=1, le=TOP_K_MAX)
    tiers: list[Literal[Tier.EPISODIC, Tier.SEMANTIC, Tier.PROCEDURAL]] | None = Field(None, min_length=1, max_length=3)
    since: Timestamp | None = None
    until: Timestamp | None = None
    now: Timestamp | None = Field(None, description="when the question is asked; 'last week' and recency count from it")
    similarity_floor: Unit | None = None
    weights: WeightsIn | None = None


class ScoreOut(BaseModel):
    """The five factors, each in [0, 1] before its weight, and the weighted total."""

    relevance: float
    recency: float
    importance: float
    frequency: float
    type_bonus: float
    total: float


class HitOut(BaseModel):
    memory: MemoryOut
    score: ScoreOut


class SearchOut(BaseModel):
    hits: list[HitOut]
    revision: int = Field(description="of the agent; what was stored up to it was searched")
    resident: bool = Field(description="true: all memories were ranked; false: the nearest candidates were")


class TenantSearchOut(BaseModel):
    hits: list[HitOut]


class ContextIn(_Body):
    """What to assemble a context for."""

    query: Query
    user_id: Identifier
    session_id: Identifier | None = None
    system_prompt: Annotated[str, Field(max_length=1_000_000), AfterValidator(_storable)] = ""
    window: int | None = Field(None, ge=1, le=10_000_000, description="the model's context window in tokens")
    output_reserve: int = Field(4096, ge=0, le=10_000_000)
    ratios: dict[Tier, Unit] | None = Field(None, description="share of the budget per tier")
    hand_over: bool = Field(False, description="give what a tier leaves unused to the others")
    top_k: int = Field(100, ge=1, le=TOP_K_MAX)
    tiers: list[Tier] | None = Field(None, min_length=1, max_length=4)
    now: Timestamp | None = Field(None, description="when the question is asked; 'last week' and recency count from it")
    similarity_floor: Unit | None = None
    weights: WeightsIn | None = None


class ContextItem(BaseModel):
    memory: MemoryOut
    text: str
    tokens: int
    summarised: bool
    score: float


class TierUsageOut(BaseModel):
    allocated: int
    used: int
    dropped: int


class Message(BaseModel):
    role: str
    content: str


class ContextOut(BaseModel):
    """Structured items and ready-to-send messages, never above the budget."""

    items: list[ContextItem]
    messages: list[Message]
    earlier: str | None = Field(None, description="what left the session's working memory, summarised")
    tokens_used: int
    tokens_available: int
    dropped: int
    tiers: dict[Tier, TierUsageOut]


class SkillIn(_Body):
    """A skill as a whole; putting it again raises its version."""

    trigger_pattern: Content
    policy: JsonObject
    tool_sequence: Annotated[list[JsonValue], AfterValidator(_storable_json)] | None = None
    user_id: Identifier | None = Field(None, description="left out, the skill belongs to the agent, for all its users")


class SkillOutcomeIn(_Body):
    outcome: Literal["success", "failure"]
    reward: Reward | None = None
    user_id: Identifier | None = None


class SkillOut(BaseModel):
    id: UUID
    agent_id: str
    namespace: str
    skill_name: str
    trigger_pattern: str
    policy: dict[str, Any]
    tool_sequence: list[Any] | None
    success_count: int
    failure_count: int
    success_rate: float
    avg_reward: float
    version: int
    created_at: datetime
    updated_at: datetime
    revision: int


class SkillList(BaseModel):
    items: list[SkillOut]


class WorkingMessageOut(BaseModel):
    id: UUID
    role: str
    speaker: str | None
    content: str
    occurred_at: datetime
    event_type: EventType


class SessionOut(BaseModel):
    messages: list[WorkingMessageOut]
    variables: dict[str, Any]
    reasoning: Any = None
    spilled: int
    summary: str | None = Field(None, description="of messages that left, as far as they are summarised yet")


class VariablesIn(_Body):
    variables: JsonObject


class ReasoningIn(_Body):
    reasoning: Json


class AgentIn(_Body):
    """An agent's own settings; what is left out follows the defaults."""

    team: Identifier | None = None
    scoring: WeightsIn | None = None
    budget_ratios: dict[Tier, Unit] | None = None
    retention: dict[EventType, RetentionTier] | None = None


class AgentOut(BaseModel):
    agent_id: str
    team: str | None
    revision: int
    scoring: dict[str, float]
    budget_ratios: dict[str, float]
    retention: dict[str, str]


class OperationOut(BaseModel):
    operation_id: str
    id: UUID
    state: WriteState
    reason: str | None = None
    memory_ids: list[UUID] = Field(default_factory=list)
    attempts: int = 0
    settled_at: datetime | None = None


class LedgerOut(BaseModel):
    """Every accepted write is pending or settled: ``accepted`` equals the sum of the others."""

    accepted: int
    pending: int
    stored: int
    duplicate: int
    rejected: int
    dead_lettered: int
    reconciled: bool


class DeadLetterOut(BaseModel):
    id: UUID
    agent_id: str
    attempts: int
    error: str
    content: str
    failed_at: datetime


class DeadLetterPage(BaseModel):
    items: list[DeadLetterOut]
    next_cursor: str | None = None


class Deleted(BaseModel):
    deleted: int
