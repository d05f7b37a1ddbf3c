"""Records for tests."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import uuid_utils

from memory.records import AgentId, Interaction, Memory, MemoryId, SessionId, TenantId, Tier, UserId

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def new_id() -> MemoryId:
    return MemoryId(uuid.UUID(bytes=uuid_utils.uuid7().bytes))


def interaction(content: str = "I prefer green tea.", **changes: Any) -> Interaction:
    values: dict[str, Any] = {
        "id": new_id(),
        "tenant_id": TenantId("tenant-a"),
        "agent_id": AgentId("agent"),
        "user_id": UserId("ann"),
        "session_id": SessionId("s1"),
        "content": content,
        "accepted_at": NOW,
        "occurred_at": NOW,
    }
    return Interaction(**values | changes)


def memory(content: str = "text", **changes: Any) -> Memory:
    values: dict[str, Any] = {
        "id": new_id(),
        "tier": Tier.EPISODIC,
        "agent_id": AgentId("agent"),
        "user_id": UserId("ann"),
        "content": content,
        "created_at": NOW,
        "recorded_at": NOW,
        "importance": 0.5,
        "revision": 1,
    }
    return Memory(**values | changes)
