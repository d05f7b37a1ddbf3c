"""Ingest streams: from the API, which accepts, to the shards, which store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redis.exceptions import RedisError, ResponseError

from configs.settings import IngestSettings, WorkingMemorySettings
from memory.errors import Backpressure, Conflict, InvalidInput, MnemorayError, Unavailable
from memory.records import AgentId, Interaction, MemoryId, Partition, SessionId, Settlement, TenantId, UserId
from stores.tasks import end
from stores.valkey import keys
from stores.valkey.codec import (
    ExtractionRequest,
    decode_extraction,
    decode_interaction,
    decode_session,
    decode_settlement,
    encode_extraction,
    encode_interaction,
    encode_message,
    encode_session,
    encode_settlement,
    fingerprint,
    message_of,
)
from stores.valkey.connection import Valkey, script, translated

logger = logging.getLogger(__name__)
GROUP = "shards"
FULL_RETRY_S = 2.0  # how soon a full stream may have room again
FSYNC_TIMEOUT_MS = 2_000


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The answer to one write. A duplicate carries the id of the first."""

    id: MemoryId
    duplicate: bool = False
    error: MnemorayError | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    entries: int
    oldest_age_s: float


class IngestStreams:
    """The accepting side."""

    def __init__(self, valkey: Valkey, *, ingest: IngestSettings, working: WorkingMemorySettings) -> None:
        self._valkey = valkey
        self._ingest = ingest
        self._working = working
        self._accept = script("accept")
        self._requeue = script("requeue")

    async def ping(self) -> None:
        """Raises ``Unavailable`` when the server does not answer."""
        with translated():
            await self._valkey.ping()

    async def accept(
        self, interactions: Sequence[Interaction], *, partition: Partition, fsync: bool = False
    ) -> list[Accepted]:
        """Append each write to its session and its stream, atomically; one answer per write, in order.

        Raises ``Unavailable`` when the server does not answer; then some may have been accepted, and repeating the
        request with the same idempotency keys is safe.
        """
        calls = [self._arguments(interaction, partition) for interaction in interactions]
        with translated():
            async with self._valkey.pipeline(transaction=False) as pipeline:
                for arguments in calls:
                    pipeline.eval(self._accept, *arguments)
                if fsync:
                    pipeline.execute_command("WAITAOF", 1, 0, FSYNC_TIMEOUT_MS)
                replies = await pipeline.execute()
        if fsync and int(replies.pop()[0]) < 1:
            raise Unavailable("the write was accepted but is not on disk yet; repeat it with its idempotency key")
        return [self._outcome(reply, interaction) for reply, interaction in zip(replies, interactions, strict=True)]

    def _arguments(self, interaction: Interaction, partition: Partition) -> list[Any]:
        key = _session_key(interaction, partition)
        session = keys.session(key)
        names = [
            keys.stream(partition),
            keys.operations(partition),
            keys.accepted(partition),
            keys.pending(partition),
            f"{session}:messages",
            f"{session}:meta",
            f"{session}:variables",
            f"{session}:left",
            f"{session}:covered",
            keys.sessions(partition, interaction.tenant_id, interaction.agent_id),
            keys.extractions(partition),
        ]
        if interaction.idempotency_key is not None:
            names.append(
                keys.idempotency(partition, interaction.tenant_id, interaction.agent_id, interaction.idempotency_key)
            )
        occurred_now = interaction.occurred_at == interaction.accepted_at
        values = [
            interaction.id.hex,
            interaction.tenant_id,
            encode_interaction(interaction),
            encode_message(message_of(interaction)),
            self._ingest.max_stream_length,
            self._working.max_messages,
            self._working.max_bytes,
            self._working.ttl_s,
            hashlib.sha256(fingerprint(interaction, occurred_now=occurred_now)).hexdigest(),
            self._ingest.idempotency_ttl_s,
            session,
            self._working.summary_after,
            encode_session(key),
        ]
        return [len(names), *names, *values]

    def _outcome(self, reply: Sequence[bytes], interaction: Interaction) -> Accepted:
        verdict, value = reply[0].decode(), reply[1].decode()
        if verdict == "accepted":
            return Accepted(id=interaction.id)
        if verdict == "duplicate":
            return Accepted(id=MemoryId(UUID(value)), duplicate=True)
        return Accepted(id=interaction.id, error=_refusal(verdict, value))

    async def requeue(self, interaction: Interaction, *, partition: Partition) -> None:
        """Put a dead letter back. It counts as accepted already."""
        names = [keys.stream(partition), keys.operations(partition), keys.pending(partition)]
        values: list[Any] = [interaction.id.hex, interaction.tenant_id, encode_interaction(interaction)]
        with translated():
            await self._valkey.eval(self._requeue, len(names), *names, *values)

    async def enqueue_extraction(
        self, *, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId, partition: Partition
    ) -> None:
        """Ask the shard to extract facts from an episode again."""
        request = ExtractionRequest(tenant_id=tenant_id, agent_id=agent_id, memory_id=memory_id)
        await ExtractionQueue(self._valkey, partition).add([request])

    async def pending(self, memory_id: MemoryId, *, partition: Partition) -> TenantId | None:
        """The tenant of a write that is not settled yet."""
        with translated():
            tenant = await self._valkey.hget(keys.operations(partition), memory_id.hex)
        return None if tenant is None else TenantId(tenant.decode() if isinstance(tenant, bytes) else tenant)

    async def counts(self, tenant_id: TenantId, partitions: int) -> tuple[int, int]:
        """Writes of a tenant: ever accepted, and not settled."""
        with translated():
            async with self._valkey.pipeline(transaction=False) as pipeline:
                for number in range(partitions):
                    pipeline.hget(keys.accepted(Partition(number)), tenant_id)
                    pipeline.hget(keys.pending(Partition(number)), tenant_id)
                found = [int(value or 0) for value in await pipeline.execute()]
        return sum(found[::2]), sum(found[1::2])

    async def backlog(self, partitions: int, *, stream: Callable[[Partition], str] = keys.stream) -> Backlog:
        """Entries in all streams of a kind, and the age of the oldest."""
        with translated():
            async with self._valkey.pipeline(transaction=False) as pipeline:
                for number in range(partitions):
                    pipeline.xlen(stream(Partition(number)))
                    pipeline.xrange(stream(Partition(number)), count=1)
                found = await pipeline.execute()
        oldest = [int(entries[0][0].split(b"-")[0]) for entries in found[1::2] if entries]
        age_s = max(0.0, time.time() - min(oldest) / 1000) if oldest else 0.0
        return Backlog(entries=sum(found[::2]), oldest_age_s=age_s)


class ExtractionQueue:
    """Appends to a partition's stream of stored episodes that wait for a model."""

    def __init__(self, valkey: Valkey, partition: Partition) -> None:
        self._valkey = valkey
        self._stream = keys.extractions(partition)

    async def add(self, requests: Sequence[ExtractionRequest]) -> None:
        """In order. Raises ``Unavailable``."""
        if not requests:
            return
        with translated():
            async with self._valkey.pipeline(transaction=False) as pipeline:
                for each in requests:
                    fields: dict[Any, Any] = {"kind": "extract", "id": "", "tenant": each.tenant_id}
                    pipeline.xadd(self._stream, fields | {"body": encode_extraction(each)})
                await pipeline.execute()


def _session_key(interaction: Interaction, partition: Partition) -> keys.SessionKey:
    return keys.SessionKey(
        tenant_id=interaction.tenant_id,
        agent_id=interaction.agent_id,
        user_id=UserId(interaction.user_id),
        session_id=SessionId(interaction.session_id),
        partition=partition,
    )


def _refusal(verdict: str, value: str) -> MnemorayError:
    if verdict == "full":
        message = f"{value} writes wait in this partition; try again after {FULL_RETRY_S:.0f} s"
        return Backpressure(message, retry_after_s=FULL_RETRY_S)
    return Conflict(f"this idempotency key was used for another write ({UUID(value)}); use a new key")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One entry as a consumer got it."""

    entry_id: str
    attempts: int  # deliveries so far, this one included; counted by the server before processing
    kind: str  # 'write', 'extract' or 'summarize'
    tenant: str
    operation: str  # id of the write, hexadecimal; '' for an extraction
    raw: bytes
    interaction: Interaction | None = None
    extraction: ExtractionRequest | None = None
    session: keys.SessionKey | None = None  # whose messages want a summary
    error: str | None = None  # why the entry cannot be read


def _delivery(entry_id: bytes, fields: Mapping[bytes, bytes], attempts: int) -> Delivery:
    raw = fields.get(b"body", b"")
    kind = fields.get(b"kind", b"").decode(errors="replace")
    common: dict[str, Any] = {
        "entry_id": entry_id.decode(),
        "attempts": attempts,
        "kind": kind,
        "tenant": fields.get(b"tenant", b"").decode(errors="replace"),
        "operation": fields.get(b"id", b"").decode(errors="replace"),
        "raw": raw,
    }
    try:
        if kind == "write":
            return Delivery(**common, interaction=decode_interaction(raw))
        if kind == "extract":
            return Delivery(**common, extraction=decode_extraction(raw))
        if kind == "summarize":
            return Delivery(**common, session=decode_session(raw))
        raise InvalidInput(f"entries of kind {kind!r} are not known here")
    except InvalidInput as exc:
        return Delivery(**common, error=str(exc))


class PartitionReader:
    """The consuming side of one partition: of its writes, or of another stream of the same kind of entries."""

    def __init__(self, valkey: Valkey, partition: Partition, consumer: str, *, stream: str | None = None) -> None:
        self._valkey = valkey
        self._stream = stream or keys.stream(partition)
        self._partition = partition
        self._consumer = consumer
        self._settle = script("settle")

    async def ensure_group(self) -> None:
        with translated(), suppress_busy_group():
            await self._valkey.xgroup_create(self._stream, GROUP, id="0", mkstream=True)

    async def read(self, count: int, block_ms: int) -> list[Delivery]:
        """New entries; waits up to ``block_ms`` for the first."""
        with translated():
            reply = await self._valkey.xreadgroup(
                GROUP, self._consumer, {self._stream: ">"}, count=count, block=block_ms
            )
        entries = _entries(reply)
        return [_delivery(entry_id, fields, 1) for entry_id, fields in entries]

    async def abandoned(self, min_idle_ms: int) -> bool:
        """Whether an entry was delivered to anybody and has not been settled for so long."""
        with translated():
            found = await self._valkey.xpending_range(self._stream, GROUP, min="-", max="+", count=1, idle=min_idle_ms)
        return bool(found)

    async def reclaim(self, count: int, min_idle_ms: int) -> list[Delivery]:
        """Entries that any consumer of this partition left behind; each claim counts as an attempt."""
        with translated():
            claimed = (
                await self._valkey.xautoclaim(
                    self._stream, GROUP, self._consumer, min_idle_time=min_idle_ms, count=count
                )
            )[1]
            if not claimed:
                return []
            waiting = await self._valkey.xpending_range(
                self._stream, GROUP, min=claimed[0][0], max=claimed[-1][0], count=len(claimed)
            )
        attempts = {found["message_id"]: int(found["times_delivered"]) for found in waiting}
        return [_delivery(entry_id, fields, attempts.get(entry_id, 1)) for entry_id, fields in claimed]

    async def settle(
        self,
        deliveries: Sequence[Delivery],
        *,
        revisions: Mapping[tuple[TenantId, AgentId], int],
        settlements: Sequence[Settlement],
    ) -> None:
        """Remove entries from the stream, publish revisions, then tell the replicas that wait."""
        names = [self._stream, keys.operations(self._partition), keys.pending(self._partition)]
        names += [keys.revision(self._partition, tenant_id, agent_id) for tenant_id, agent_id in revisions]
        values: list[Any] = [GROUP, len(deliveries)]
        for delivery in deliveries:
            values += [delivery.entry_id, delivery.operation, delivery.tenant]
        with translated():
            await self._valkey.eval(self._settle, len(names), *names, *values, *revisions.values())
        await self._notify(deliveries, settlements)

    async def _notify(self, deliveries: Sequence[Delivery], settlements: Sequence[Settlement]) -> None:
        by_id = {settlement.operation_id: settlement for settlement in settlements}
        for delivery in deliveries:
            interaction = delivery.interaction
            if interaction is not None and interaction.reply_to and interaction.id in by_id:
                with translated():
                    await self._valkey.publish(interaction.reply_to, encode_settlement(by_id[interaction.id]))


def _entries(reply: Any) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
    """The entries of an XREADGROUP of one stream, in RESP2 (a list) and RESP3 (a mapping)."""
    if not reply:
        return []
    streams = reply.values() if isinstance(reply, dict) else [found[1] for found in reply]
    entries = [entry for batch in streams for entry in batch]
    if entries and isinstance(entries[0], list) and entries[0] and isinstance(entries[0][0], list | tuple):
        return [entry for batch in entries for entry in batch]
    return entries


@contextmanager
def suppress_busy_group() -> Iterator[None]:
    """The group exists already: another shard had the partition before."""
    try:
        yield
    except ResponseError as exc:
        if "BUSYGROUP" not in str(exc):
            raise


class Listener:
    """Hears on one channel how the writes ended that this replica's requests wait for."""

    def __init__(self, valkey: Valkey, channel: str) -> None:
        self._valkey = valkey
        self.channel = channel
        self._expected: dict[MemoryId, asyncio.Future[Settlement]] = {}
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._run(), name="settlement-listener")

    async def close(self) -> None:
        if self._task is not None:
            await end(self._task)

    @contextmanager
    def expecting(self, ids: Sequence[MemoryId]) -> Iterator[None]:
        """Register before the write is sent: its end may be heard before the answer to it."""
        loop = asyncio.get_running_loop()
        self._expected |= {each: loop.create_future() for each in ids}
        try:
            yield
        finally:
            for each in ids:
                self._expected.pop(each, None)

    async def wait_for(self, memory_id: MemoryId, *, timeout_s: float) -> Settlement | None:
        """How the write ended; ``None`` when nothing was heard in time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._expected[memory_id], timeout_s)
        return None

    async def _run(self) -> None:
        while True:
            try:
                async with self._valkey.pubsub() as channel:
                    await channel.subscribe(self.channel)
                    await self._hear(channel)
            except (RedisError, OSError) as exc:
                logger.warning("the settlement channel is interrupted: %s", exc)
                await asyncio.sleep(0.2)

    async def _hear(self, channel: Any) -> None:
        while True:
            message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                settlement = decode_settlement(message["data"])
                future = self._expected.get(settlement.operation_id)
                if future is not None and not future.done():
                    future.set_result(settlement)
