"""Rows become memories at the cursor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory.records import AgentId, EventType, Memory, MemoryId, Outcome, SessionId, Tier, UserId

#: Columns of an episode as every read path selects them; the same for facts and skills below.
Row = dict[str, Any]


def episode(row: Row) -> Memory:
    return Memory(
        id=MemoryId(row["id"]),
        tier=Tier.EPISODIC,
        agent_id=AgentId(row["agent_id"]),
        user_id=UserId(row["user_id"]),
        session_id=SessionId(row["session_id"]),
        content=row["content"],
        event_type=EventType(row["event_type"]),
        speaker=row["speaker"],
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        importance=row["importance"],
        access_count=row["access_count"],
        last_accessed_at=row["last_accessed_at"],
        created_at=row["created_at"],
        recorded_at=row["recorded_at"],
        expires_at=row["expires_at"],
        revision=row["revision"],
        metadata=row["metadata"],
        details={
            "role": row["role"],
            "retention_tier": row["retention_tier"],
            "extraction": row["extraction"],
            "skill": row["skill"],
            "trust": row["trust"],
        },
    )


def fact(row: Row) -> Memory:
    """A fact's importance is its confidence."""
    source = row["source_episode_id"]
    return Memory(
        id=MemoryId(row["id"]),
        tier=Tier.SEMANTIC,
        agent_id=AgentId(row["agent_id"]),
        user_id=None if row["user_id"] is None else UserId(row["user_id"]),
        namespace=row["namespace"],
        content=row["fact"],
        importance=row["confidence"],
        access_count=row["access_count"],
        last_accessed_at=row["last_accessed_at"],
        created_at=row["valid_from"],
        recorded_at=row["created_at"],
        expires_at=row["expires_at"],
        revision=row["revision"],
        source_ids=() if source is None else (MemoryId(source),),
        metadata=row["metadata"],
        details={
            "subject": row["subject"],
            "predicate": row["predicate"],
            "object": row["object"],
            "confidence": row["confidence"],
            "supersedes": None if row["supersedes"] is None else str(row["supersedes"]),
            "valid_from": row["valid_from"].isoformat(),
            "valid_until": None if row["valid_until"] is None else row["valid_until"].isoformat(),
        },
    )


def quarantined(row: Row) -> Memory:
    """A fact that is not recalled; it was never superseded or used."""
    unset = dict.fromkeys(("source_episode_id", "supersedes", "last_accessed_at", "valid_until", "expires_at"))
    memory = fact({**unset, "access_count": 0, **row})
    sources = [MemoryId(each) for each in row.get("sources") or ()]
    return replace(memory, source_ids=sources, details={**memory.details, "quarantined": True})


def skill(row: Row) -> Memory:
    """A skill's importance is its success rate; one without outcomes yet counts as even."""
    tried = row["success_count"] + row["failure_count"]
    return Memory(
        id=MemoryId(row["id"]),
        tier=Tier.PROCEDURAL,
        agent_id=AgentId(row["agent_id"]),
        user_id=None if row["user_id"] is None else UserId(row["user_id"]),
        namespace=row["namespace"],
        content=f"{row['skill_name']}: {row['trigger_pattern']}",
        importance=row["success_rate"] if tried else 0.5,
        access_count=row["access_count"],
        last_accessed_at=row["last_accessed_at"],
        created_at=row["updated_at"],
        recorded_at=row["created_at"],
        revision=row["revision"],
        metadata=row["metadata"],
        details={
            key: row[key]
            for key in (
                "skill_name",
                "trigger_pattern",
                "policy",
                "tool_sequence",
                "success_count",
                "failure_count",
                "success_rate",
                "avg_reward",
                "version",
            )
        },
    )


OF_TIER = {Tier.EPISODIC: episode, Tier.SEMANTIC: fact, Tier.PROCEDURAL: skill}
