"""What a caller hands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Tier = Literal["working", "episodic", "semantic", "procedural"]
EventType = Literal["conversation", "action", "observation", "outcome"]
Role = Literal["user", "assistant", "system", "tool"]
Outcome = Literal["success", "failure", "partial", "unknown"]
RetentionTier = Literal["transient", "session", "short_term", "medium_term", "long_term", "permanent"]
Trust = Literal["system", "user", "tool", "external"]
Wait = Literal["accepted", "persistent"]
Durability = Literal["default", "fsync"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A fact that the caller extracted itself."""

    fact: str  # understandable without its source
    subject: str | None = None
    predicate: str | None = None
    object: str | None = None
    confidence: float = 0.7
    scope: Literal["user", "agent", "world"] = "user"
    valid_from: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NewMemory:
    """One interaction to remember."""

    content: str
    user_id: str  # the user whom the agent served
    session_id: str = "default"  # the conversation it belongs to
    event_type: EventType = "conversation"
    role: Role = "user"
    speaker: str | None = None  # who said it, by name
    trust: Trust | None = None  # of the channel it came through; left out, user
    outcome: Outcome | None = None
    importance: float | None = None  # left out, the classifier decides
    retention_tier: RetentionTier | None = None
    occurred_at: datetime | None = None  # with a time zone; left out, now
    metadata: Mapping[str, Any] = field(default_factory=dict)
    infer: bool = True  # False stores it as given and extracts nothing
    facts: Sequence[Fact] = ()
    skill: str | None = None  # the skill that this interaction applied
    reward: float | None = None
    idempotency_key: str | None = None  # left out, a fresh one, so that a retry cannot store it twice
