"""Keys. Each begins with the hash tag of its partition, so one agent's keys share a slot of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from memory.records import AgentId, Partition, SessionId, TenantId, UserId


@dataclass(frozen=True, kw_only=True)
class SessionKey:
    """Identifies one session's working memory."""

    tenant_id: TenantId
    agent_id: AgentId
    user_id: UserId
    session_id: SessionId
    partition: Partition


def key(partition: Partition, *parts: str) -> str:
    """Parts are percent-encoded: an id may contain the separator."""
    return f"{{p{partition}}}:" + ":".join(quote(part, safe="") for part in parts)


def stream(partition: Partition) -> str:
    return key(partition, "ingest")


def extractions(partition: Partition) -> str:
    """Stream: stored episodes that wait for a model."""
    return key(partition, "extract")


def operations(partition: Partition) -> str:
    """Hash: id of a pending write -> its tenant."""
    return key(partition, "ops")


def accepted(partition: Partition) -> str:
    """Hash: tenant -> writes ever accepted."""
    return key(partition, "accepted")


def pending(partition: Partition) -> str:
    """Hash: tenant -> writes accepted and not settled."""
    return key(partition, "pending")


def idempotency(partition: Partition, tenant_id: TenantId, agent_id: AgentId, name: str) -> str:
    return key(partition, "idem", tenant_id, agent_id, name)


def revision(partition: Partition, tenant_id: TenantId, agent_id: AgentId) -> str:
    return key(partition, "rev", tenant_id, agent_id)


def skills(partition: Partition, tenant_id: TenantId, agent_id: AgentId) -> str:
    return key(partition, "skills", tenant_id, agent_id)


def sessions(partition: Partition, tenant_id: TenantId, agent_id: AgentId) -> str:
    """Set: the session keys of an agent, so that forgetting finds every session that holds a message."""
    return key(partition, "sessions", tenant_id, agent_id)


def session(of: SessionKey) -> str:
    return key(of.partition, "wm", of.tenant_id, of.agent_id, of.user_id, of.session_id)
