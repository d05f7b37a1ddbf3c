"""Operations, the ledger and dead letters: how every accepted write ended."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query

from memory.errors import NotFound
from memory.records import AgentId, MemoryId, Partition, TenantId, WriteState
from serve.acceptance import operation_id, parse_operation_id
from serve.dependencies import MemoryPath, Open, Tenant
from serve.schemas import DeadLetterOut, DeadLetterPage, LedgerOut, OperationOut
from serve.services import Services
from stores.valkey.codec import decode_interaction

router = APIRouter(prefix="/v1", tags=["operations"])


async def _operation(
    services: Services, tenant_id: TenantId, partition: Partition, memory_id: MemoryId
) -> OperationOut:
    """Pending is asked last: a write may settle between the two questions, never un-settle."""
    name = operation_id(partition, memory_id)
    pending = await services.streams.pending(memory_id, partition=partition) == tenant_id
    found = await services.ledger.find(tenant_id, memory_id)
    if found is not None:
        settlement = found.settlement
        return OperationOut(
            operation_id=name,
            id=memory_id,
            state=settlement.state,
            reason=settlement.reason,
            memory_ids=list(settlement.memory_ids),
            attempts=settlement.attempts,
            settled_at=found.settled_at,
        )
    if pending:
        return OperationOut(operation_id=name, id=memory_id, state=WriteState.PENDING)
    raise NotFound(f"no operation {name}")


@router.get("/operations/{operation}")
async def get_operation(
    operation: Annotated[str, Path(max_length=64)], tenant_id: Tenant, services: Open
) -> OperationOut:
    """Pending, or settled as stored, duplicate, rejected or dead-lettered."""
    partition, memory_id = parse_operation_id(operation)
    if partition >= services.settings.partitions:
        raise NotFound(f"no operation {operation}")
    return await _operation(services, tenant_id, partition, memory_id)


@router.get("/ledger")
async def get_ledger(tenant_id: Tenant, services: Open) -> LedgerOut:
    """Totals of this tenant's writes. ``reconciled``: accepted is the sum of pending and settled."""
    accepted, pending = await services.streams.counts(tenant_id, services.settings.partitions)
    states = await services.ledger.counts(tenant_id)
    settled = {state: states.get(state, 0) for state in WriteState if state is not WriteState.PENDING}
    return LedgerOut(
        accepted=accepted,
        pending=pending,
        reconciled=accepted == pending + sum(settled.values()),
        **{state.value: count for state, count in settled.items()},
    )


@router.get("/dead-letters")
async def list_dead_letters(
    tenant_id: Tenant,
    services: Open,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> DeadLetterPage:
    """Writes that failed too often, oldest first."""
    rows, next_cursor = await services.ledger.list_page(tenant_id, limit=limit, cursor=cursor)
    items = [DeadLetterOut.model_validate(row, from_attributes=True) for row in rows]
    return DeadLetterPage(items=items, next_cursor=next_cursor)


@router.post("/dead-letters/{memory_id_}/replay")
async def replay_dead_letter(memory_id_: MemoryPath, tenant_id: Tenant, services: Open) -> OperationOut:
    """Put a dead letter back into its ingest stream; it is pending again."""
    memory_id = MemoryId(memory_id_)
    async with services.ledger.replaying(tenant_id, memory_id) as payload:
        interaction = decode_interaction(payload)
        partition = services.acceptance.partition(tenant_id, AgentId(interaction.agent_id))
        await services.streams.requeue(interaction, partition=partition)
    return OperationOut(operation_id=operation_id(partition, memory_id), id=memory_id, state=WriteState.PENDING)


@router.delete("/dead-letters/{memory_id_}")
async def drop_dead_letter(memory_id_: MemoryPath, tenant_id: Tenant, services: Open) -> OperationOut:
    """Give a dead letter up: the ledger says rejected, its content goes."""
    memory_id: MemoryId = MemoryId(UUID(str(memory_id_)))
    agent_id = await services.ledger.drop(tenant_id, memory_id)
    partition = services.acceptance.partition(tenant_id, agent_id)
    return await _operation(services, tenant_id, partition, memory_id)
