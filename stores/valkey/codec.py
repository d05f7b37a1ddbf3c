"""Interactions and messages as bytes: JSON with a version, readable in redis-cli.

Timestamps are RFC 3339, ids hexadecimal. An entry of a later version is refused, not guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memory.errors import InvalidInput
from memory.records import (
    AgentId,
    EventType,
    FactDraft,
    FactScope,
    Interaction,
    MemoryId,
    Outcome,
    Partition,
    RetentionTier,
    SessionId,
    Settlement,
    TenantId,
    Trust,
    UserId,
    WorkingMessage,
    WriteState,
)
from stores.valkey.keys import SessionKey

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ExtractionRequest:
    """Asks the shard to extract facts from an episode that is stored already."""

    tenant_id: TenantId
    agent_id: AgentId
    memory_id: MemoryId


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return value.hex
    raise TypeError(f"{type(value).__name__} cannot be encoded")


def dumps(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _fields(interaction: Interaction) -> dict[str, Any]:
    """All fields. The usual trust is left out, so that entries and fingerprints of writes that do not speak of it are
    what they were before there was any, for code of before, too."""
    values = asdict(interaction)
    if interaction.trust is Trust.USER:
        del values["trust"]
    return values


def encode_interaction(interaction: Interaction) -> bytes:
    return dumps({"v": VERSION, **_fields(interaction)})


def decode_interaction(data: bytes) -> Interaction:
    """Raises ``InvalidInput`` when ``data`` is not an interaction of this version."""
    try:
        found = json.loads(data)
        if found.pop("v") != VERSION:
            raise InvalidInput("this entry was written by another version; finish the upgrade on all nodes")
        return Interaction(**{**found, **_typed_interaction(found)})
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise InvalidInput(f"not a readable entry: {exc}") from exc


def _typed_interaction(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": MemoryId(UUID(found["id"])),
        "accepted_at": datetime.fromisoformat(found["accepted_at"]),
        "occurred_at": datetime.fromisoformat(found["occurred_at"]),
        "event_type": EventType(found["event_type"]),
        "outcome": None if found["outcome"] is None else Outcome(found["outcome"]),
        "retention_tier": None if found["retention_tier"] is None else RetentionTier(found["retention_tier"]),
        "trust": Trust(found.get("trust", Trust.USER)),
        "facts": tuple(_fact(fact) for fact in found["facts"]),
    }


def _fact(found: Mapping[str, Any]) -> FactDraft:
    valid_from = found["valid_from"]
    typed = {
        "scope": FactScope(found["scope"]),
        "valid_from": None if valid_from is None else datetime.fromisoformat(valid_from),
    }
    return FactDraft(**{**found, **typed})


#: Fields that differ between two attempts at the same write.
_OF_THE_ATTEMPT = {"id", "accepted_at", "reply_to"}


def fingerprint(interaction: Interaction, *, occurred_now: bool) -> bytes:
    """What must be equal for two requests with one idempotency key to be the same write.

    ``occurred_now``: the caller gave no time, so the time of the request is not part of the comparison.
    """
    ignored = _OF_THE_ATTEMPT | ({"occurred_at"} if occurred_now else set())
    return dumps({name: value for name, value in _fields(interaction).items() if name not in ignored})


def message_of(interaction: Interaction) -> WorkingMessage:
    return WorkingMessage(
        id=interaction.id,
        role=interaction.role,
        speaker=interaction.speaker,
        content=interaction.content,
        occurred_at=interaction.occurred_at,
        event_type=interaction.event_type,
    )


def encode_message(message: WorkingMessage) -> bytes:
    return dumps(asdict(message))


def decode_message(data: bytes) -> WorkingMessage:
    found = json.loads(data)
    typed = {
        "id": MemoryId(UUID(found["id"])),
        "occurred_at": datetime.fromisoformat(found["occurred_at"]),
        "event_type": EventType(found["event_type"]),
    }
    return WorkingMessage(**{**found, **typed})


def encode_extraction(request: ExtractionRequest) -> bytes:
    return dumps({"v": VERSION, **asdict(request)})


def decode_extraction(data: bytes) -> ExtractionRequest:
    """Raises ``InvalidInput`` when ``data`` is not such a request."""
    try:
        found = json.loads(data)
        return ExtractionRequest(
            tenant_id=TenantId(found["tenant_id"]),
            agent_id=AgentId(found["agent_id"]),
            memory_id=MemoryId(UUID(found["memory_id"])),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidInput(f"not a readable entry: {exc}") from exc


def encode_session(key: SessionKey) -> bytes:
    return dumps({"v": VERSION, **asdict(key)})


def decode_session(data: bytes) -> SessionKey:
    """Raises ``InvalidInput`` when ``data`` names no session."""
    try:
        found = json.loads(data)
        return SessionKey(
            tenant_id=TenantId(found["tenant_id"]),
            agent_id=AgentId(found["agent_id"]),
            user_id=UserId(found["user_id"]),
            session_id=SessionId(found["session_id"]),
            partition=Partition(found["partition"]),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise InvalidInput(f"not a readable entry: {exc}") from exc


def encode_settlement(settlement: Settlement) -> bytes:
    return dumps(asdict(settlement))


def decode_settlement(data: bytes) -> Settlement:
    found = json.loads(data)
    typed = {
        "operation_id": MemoryId(UUID(found["operation_id"])),
        "state": WriteState(found["state"]),
        "memory_ids": tuple(MemoryId(UUID(each)) for each in found["memory_ids"]),
    }
    return Settlement(**{**found, **typed})
