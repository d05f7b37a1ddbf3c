"""A request becomes an accepted interaction: redacted, identified, and in Valkey in one atomic step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import uuid_utils

from memory.errors import InvalidInput, MnemorayError
from memory.records import (
    AgentId,
    FactDraft,
    Interaction,
    MemoryId,
    Partition,
    SessionId,
    TenantId,
    UserId,
    WriteState,
)
from memory.redaction import redact_secrets, redact_value
from memory.routing import partition_of
from serve.schemas import Accepted, FactIn, MemoryIn, WriteOptions
from stores.postgres.ledger import LedgerStore
from stores.valkey.ingest import Accepted as StreamAccepted
from stores.valkey.ingest import IngestStreams, Listener


def operation_id(partition: Partition, memory_id: UUID) -> str:
    """``op-<partition>-<id>``: the partition says where a pending write is found."""
    return f"op-{partition}-{memory_id.hex}"


def parse_operation_id(text: str) -> tuple[Partition, MemoryId]:
    """Raises ``InvalidInput`` when ``text`` was never an operation id."""
    try:
        prefix, partition, memory_id = text.split("-")
        if prefix != "op" or not partition.isdecimal() or len(partition) > 4:
            raise ValueError(prefix)
        return Partition(int(partition)), MemoryId(UUID(hex=memory_id))
    except ValueError:
        raise InvalidInput(
            f"{text[:80]!r} is not an operation id; use the operation_id that a write returned"
        ) from None


def interaction_from(body: MemoryIn, tenant_id: TenantId, agent_id: AgentId, reply_to: str | None) -> Interaction:
    """Secrets are taken out here, before anything is stored or queued."""
    now = datetime.now(UTC)
    return Interaction(
        id=MemoryId(UUID(bytes=uuid_utils.uuid7().bytes)),
        tenant_id=tenant_id,
        agent_id=agent_id,
        user_id=UserId(body.user_id),
        session_id=SessionId(body.session_id),
        content=redact_secrets(body.content).text,
        accepted_at=now,
        occurred_at=body.occurred_at or now,
        event_type=body.event_type,
        speaker=body.speaker,
        role=body.role,
        outcome=body.outcome,
        importance=body.importance,
        retention_tier=body.retention_tier,
        metadata=redact_value(body.metadata),
        infer=body.infer,
        facts=tuple(_fact(fact) for fact in body.facts),
        skill=body.skill,
        reward=body.reward,
        trust=body.trust,
        idempotency_key=body.idempotency_key,
        reply_to=reply_to,
    )


def _fact(fact: FactIn) -> FactDraft:
    return FactDraft(
        fact=redact_secrets(fact.fact).text,
        subject=fact.subject,
        predicate=fact.predicate,
        object=None if fact.object is None else redact_secrets(fact.object).text,
        confidence=fact.confidence,
        scope=fact.scope,
        valid_from=fact.valid_from,
    )


class Acceptance:
    """Accepts writes of one API replica."""

    def __init__(
        self, streams: IngestStreams, listener: Listener, ledger: LedgerStore, *, partitions: int, wait_timeout_s: float
    ) -> None:
        self._streams = streams
        self._listener = listener
        self._ledger = ledger
        self._partitions = partitions
        self._wait_timeout_s = wait_timeout_s

    def partition(self, tenant_id: TenantId, agent_id: AgentId) -> Partition:
        return partition_of(tenant_id, agent_id, partitions=self._partitions)

    async def accept(
        self, tenant_id: TenantId, agent_id: AgentId, bodies: Sequence[MemoryIn], options: WriteOptions
    ) -> list[Accepted | MnemorayError]:
        """One answer per body, in order. Raises ``Unavailable`` when Valkey does not answer."""
        waits = options.wait == "persistent"
        reply_to = self._listener.channel if waits else None
        interactions = [interaction_from(body, tenant_id, agent_id, reply_to) for body in bodies]
        partition = self.partition(tenant_id, agent_id)
        fsync = options.durability == "fsync"
        with self._listener.expecting([interaction.id for interaction in interactions] if waits else []):
            results = await self._streams.accept(interactions, partition=partition, fsync=fsync)
            return [await self._answer(tenant_id, partition, result, waits=waits) for result in results]

    async def _answer(
        self, tenant_id: TenantId, partition: Partition, result: StreamAccepted, *, waits: bool
    ) -> Accepted | MnemorayError:
        if result.error is not None:
            return result.error
        if waits and not result.duplicate:
            await self._listener.wait_for(result.id, timeout_s=self._wait_timeout_s)
        settled = await self._ledger.find(tenant_id, result.id) if waits or result.duplicate else None
        found = settled.settlement if settled else None
        return Accepted(
            id=result.id,
            operation_id=operation_id(partition, result.id),
            state=found.state if found else WriteState.PENDING,
            duplicate=result.duplicate,
            memory_ids=list(found.memory_ids) if found else [],
            reason=found.reason if found else None,
        )
