"""The shard's transaction: everything of a micro-batch, or nothing."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory.normalise import content_hash
from memory.ports import Vectors
from memory.records import (
    AgentId,
    Classification,
    EventType,
    ExtractionState,
    FactDraft,
    FactScope,
    Interaction,
    MemoryId,
    Outcome,
    Partition,
    RetentionTier,
    Settlement,
    SkillDraft,
    TenantId,
    Trust,
    UserId,
    WriteState,
    expires_at,
    namespace_of,
)
from memory.rules import is_correction
from stores.postgres import queries
from stores.postgres.agents import lock_agents
from stores.postgres.beliefs import confirm, meet
from stores.postgres.beliefs import settle as settle_beliefs
from stores.postgres.database import Connection, Database, set_tenant
from stores.postgres.ledger import LedgerEntry, find_idempotent, settle
from stores.postgres.quarantine import hold
from stores.postgres.shards import fence
from stores.postgres.skills import CALLER, count_outcome, upsert_skill

_SQL = queries.load("writes")
POOLS = 4  # placements 0..3 of the first migration
MONTHS_AHEAD = 2
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One interaction with everything a model had to say about it."""

    interaction: Interaction
    classification: Classification
    vector: Vectors
    fact_vectors: Vectors  # one row per fact of the classification
    skill_vectors: Vectors  # one row per skill of the classification
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """What a shard must still hold when its transaction commits."""

    partition: Partition
    shard: str
    epoch: int


@dataclass(kw_only=True)
class Written:
    """The end of every item of a batch, and the revision each agent reached."""

    settlements: dict[MemoryId, Settlement] = field(default_factory=dict)
    revisions: dict[tuple[TenantId, AgentId], int] = field(default_factory=dict)
    skilled: set[tuple[TenantId, AgentId]] = field(default_factory=set)  # agents whose skills changed


class WriteStore:
    """Stores micro-batches of prepared interactions."""

    def __init__(self, database: Database, *, embedding_model: str) -> None:
        self._database = database
        self._model = embedding_model
        self._months: set[tuple[int, int]] = set()

    async def persist(self, owner: Ownership, items: Sequence[Prepared]) -> Written:
        """Store all items in one transaction, with their ledger rows and revisions.

        Idempotent by id. Raises ``Fenced`` when another shard owns the partition, ``Unavailable`` when the server
        does not answer; nothing is changed then.
        """
        await self._ensure_months(item.interaction.occurred_at for item in items)
        written = Written()
        async with self._database.connection() as connection, connection.transaction():
            await fence(connection, owner.partition, owner.shard, owner.epoch)
            for tenant_id, group in _by_tenant(items).items():
                await set_tenant(connection, tenant_id)
                await _TenantBatch(connection, tenant_id, owner.partition, self._model, written).store(group)
        return written

    async def extract(self, owner: Ownership, item: Prepared, *, state: ExtractionState) -> Written:
        """Store what was extracted from a stored episode, unless that was deleted, changed or settled meanwhile."""
        written = Written()
        interaction = item.interaction
        async with self._database.connection() as connection, connection.transaction():
            await fence(connection, owner.partition, owner.shard, owner.epoch)
            await set_tenant(connection, interaction.tenant_id)
            batch = _TenantBatch(connection, interaction.tenant_id, owner.partition, self._model, written)
            await batch.derive(item, state)
        return written

    async def pending_episode(self, tenant_id: TenantId, agent_id: AgentId, memory_id: MemoryId) -> Interaction | None:
        """The episode as an interaction, if it still waits for extraction."""
        async with self._database.transaction(tenant_id) as connection:
            key = {"id": memory_id, "tenant_id": tenant_id, "agent_id": agent_id}
            row = await (await connection.execute(_SQL["pending_episode"], key)).fetchone()
        if row is None:
            return None
        times = {"accepted_at": row.pop("recorded_at"), "occurred_at": row.pop("created_at")}
        outcome, event_type, trust = row.pop("outcome"), EventType(row.pop("event_type")), Trust(row.pop("trust"))
        said = None if outcome is None else Outcome(outcome)
        return Interaction(**row, **times, event_type=event_type, outcome=said, trust=trust)

    async def ping(self) -> None:
        """Raises ``Unavailable`` when the server does not answer."""
        async with self._database.connection() as connection:
            await connection.execute("SELECT 1")

    async def ensure_months_ahead(self, now: datetime) -> None:
        """Create this month's partition and those of the next months."""
        first = now.replace(day=1)
        months = [first.month - 1 + ahead for ahead in range(MONTHS_AHEAD + 1)]
        await self._ensure_months(first.replace(year=first.year + m // 12, month=m % 12 + 1) for m in months)

    async def _ensure_months(self, moments: Any) -> None:
        wanted = {(m.year, m.month) for m in (moment.astimezone(UTC) for moment in moments)} - self._months
        for year, month in sorted(wanted):
            async with self._database.connection() as connection:
                moment = {"moment": datetime(year, month, 1, tzinfo=UTC)}
                await connection.execute(_SQL["ensure_partition"], moment)
            self._months.add((year, month))


class _TenantBatch:
    """The part of a batch that belongs to one tenant, inside the batch's transaction."""

    def __init__(
        self, connection: Connection, tenant_id: TenantId, partition: Partition, model: str, written: Written
    ) -> None:
        self._connection = connection
        self._tenant_id = tenant_id
        self._partition = partition
        self._model = model
        self._written = written

    async def store(self, items: Sequence[Prepared]) -> None:
        revisions, retention = await self._lock({item.interaction.agent_id for item in items})
        # Redelivered items, too: the shard may have stopped between its commit and telling the cache.
        skilled = (each.interaction for each in items if each.classification.skills or each.interaction.skill)
        self._written.skilled |= {(self._tenant_id, interaction.agent_id) for interaction in skilled}
        fresh = await self._fresh(items)
        await self._insert_episodes(fresh, revisions, retention)
        await self._touch_sessions(fresh)
        derived = {item.interaction.id: await self._derive(item, revisions) for item in fresh}
        for item in fresh:
            await self._count_outcome(item.interaction, revisions[item.interaction.agent_id])
            self._settle(item, WriteState.STORED, memory_ids=(item.interaction.id, *derived[item.interaction.id]))
        await settle(self._connection, self._tenant_id, [self._entry(item) for item in items])

    async def derive(self, item: Prepared, state: ExtractionState) -> None:
        """Facts and skills of an episode that is stored already.

        A model takes its time: the episode may be gone by now. Deletions take the agent's lock, too, so that what is
        seen under it stays true until the transaction ends.
        """
        interaction = item.interaction
        revisions, _ = await self._lock({interaction.agent_id})
        key = {
            "id": interaction.id,
            "created_at": interaction.occurred_at,
            "tenant_id": self._tenant_id,
            "content_hash": content_hash(interaction.content),
            "state": state,
            "importance": item.classification.importance,
            "revision": revisions[interaction.agent_id],
        }
        if not await self._rows("settle_extraction", key):
            return
        self._written.skilled.add((self._tenant_id, interaction.agent_id))
        await self._derive(item, revisions)

    async def _lock(self, agents: set[AgentId]) -> tuple[Mapping[AgentId, int], Mapping[AgentId, Mapping[str, str]]]:
        pairs = [(agent_id, self._partition) for agent_id in sorted(agents)]
        locked = await lock_agents(self._connection, self._tenant_id, pairs)
        revisions = {agent_id: lock.revision for agent_id, lock in locked.items()}
        self._written.revisions |= {(self._tenant_id, agent_id): rev for agent_id, rev in revisions.items()}
        return revisions, {agent_id: lock.retention for agent_id, lock in locked.items()}

    async def _fresh(self, items: Sequence[Prepared]) -> list[Prepared]:
        """The items to store; the others are settled as duplicate or rejected."""
        ids = {"ids": [item.interaction.id for item in items], "tenant_id": self._tenant_id}
        buried = {row["memory_id"] for row in await self._rows("buried", ids)}
        settled = {row["operation_id"]: row["state"] for row in await self._rows("settled", ids)}
        deleted = await self._deleted_users(items)
        originals = await self._originals(items)
        fresh = []
        for item in items:
            memory_id, key = item.interaction.id, idempotency_hash(item.interaction)
            original = originals.setdefault((item.interaction.agent_id, key), memory_id) if key else memory_id
            if memory_id in settled:
                self._settle(item, WriteState(settled[memory_id]), reason="redelivered")
            elif memory_id in buried:
                self._settle(item, WriteState.REJECTED, reason="deleted before it was stored")
            elif item.interaction.accepted_at <= deleted.get(_user(item.interaction), _NEVER):
                self._settle(item, WriteState.REJECTED, reason="its user was deleted before it was stored")
            elif original != memory_id:
                self._settle(item, WriteState.DUPLICATE, reason=f"of {original}", memory_ids=(MemoryId(original),))
            else:
                fresh.append(item)
        return fresh

    async def _deleted_users(self, items: Sequence[Prepared]) -> dict[tuple[AgentId, UserId], datetime]:
        pairs = sorted({_user(item.interaction) for item in items})
        key = {"tenant_id": self._tenant_id, "agents": [a for a, _ in pairs], "users": [u for _, u in pairs]}
        return {(row["agent_id"], row["user_id"]): row["at"] for row in await self._rows("deleted_users", key)}

    async def _originals(self, items: Sequence[Prepared]) -> dict[tuple[AgentId, str | None], UUID]:
        by_agent: dict[AgentId, list[str]] = defaultdict(list)
        for item in items:
            if key := idempotency_hash(item.interaction):
                by_agent[item.interaction.agent_id].append(key)
        originals: dict[tuple[AgentId, str | None], UUID] = {}
        for agent_id, keys in by_agent.items():
            known = await find_idempotent(self._connection, self._tenant_id, agent_id, keys)
            originals |= {(agent_id, key): operation_id for key, operation_id in known.items()}
        return originals

    async def _insert_episodes(
        self,
        items: Sequence[Prepared],
        revisions: Mapping[AgentId, int],
        retention: Mapping[AgentId, Mapping[str, str]],
    ) -> None:
        rows = [
            self._episode_row(item, revisions[item.interaction.agent_id], retention[item.interaction.agent_id])
            for item in items
        ]
        async with self._connection.cursor() as cursor:
            await cursor.executemany(_SQL["insert_episode"], rows)

    def _episode_row(self, item: Prepared, revision: int, retention: Mapping[str, str]) -> dict[str, Any]:
        interaction, now = item.interaction, datetime.now(UTC)
        default = retention.get(interaction.event_type, RetentionTier.MEDIUM_TERM)
        tier = interaction.retention_tier or RetentionTier(default)
        return {
            "id": interaction.id,
            "tenant_id": self._tenant_id,
            "agent_id": interaction.agent_id,
            "user_id": interaction.user_id,
            "session_id": interaction.session_id,
            "event_type": interaction.event_type,
            "role": interaction.role,
            "speaker": interaction.speaker,
            "content": interaction.content,
            "content_hash": content_hash(interaction.content),
            "outcome": interaction.outcome,
            "importance": item.classification.importance,
            "importance_given": interaction.importance is not None,
            "embedding": item.vector,
            "embedding_model": self._model,
            "retention_tier": tier,
            "extraction": _extraction_state(item),
            "skill": interaction.skill,
            "trust": interaction.trust,
            "metadata": Jsonb(dict(interaction.metadata)),
            "revision": revision,
            "created_at": interaction.occurred_at,
            "recorded_at": now,
            "expires_at": expires_at(now, tier),
        }

    async def _touch_sessions(self, items: Sequence[Prepared]) -> None:
        counts = Counter((i.interaction.agent_id, i.interaction.user_id, i.interaction.session_id) for i in items)
        for (agent_id, user_id, session_id), episodes in sorted(counts.items()):
            key = {"tenant_id": self._tenant_id, "agent_id": agent_id, "user_id": user_id, "session_id": session_id}
            await self._connection.execute(_SQL["touch_session"], key | {"episodes": episodes})

    async def _derive(self, item: Prepared, revisions: Mapping[AgentId, int]) -> list[MemoryId]:
        revision = revisions[item.interaction.agent_id]
        facts = zip(item.classification.facts, item.fact_vectors, strict=True)
        skills = zip(item.classification.skills, item.skill_vectors, strict=True)
        origin = item.classification.origin
        stored = [await self._store_fact(item.interaction, fact, vector, revision, origin) for fact, vector in facts]
        stored += [
            await self._hold(item.interaction, fact, revision, origin) for fact in item.classification.quarantined
        ]
        return stored + [
            await self._store_skill(item.interaction, skill, vector, revision, origin) for skill, vector in skills
        ]

    async def _store_fact(
        self, source: Interaction, draft: FactDraft, vector: Vectors, revision: int, origin: str
    ) -> MemoryId:
        values = await self._fact_values(source, draft, revision, origin)
        values |= {"source_id": source.id, "embedding": vector, "embedding_model": self._model}
        fact_id = MemoryId(await self._believe(values, correction=is_correction(source.content)))
        await self._add_source(source, fact_id, "semantic")
        return fact_id

    async def _believe(self, values: dict[str, Any], *, correction: bool) -> UUID:
        """Store a fact beside what is believed already; the id of the row that says it now."""
        meeting = await meet(self._connection, values, correction=correction)
        if meeting.same is not None:
            await confirm(self._connection, meeting.same, values)
            return meeting.same
        (row,) = await self._rows("upsert_fact", values)
        if row["added"]:
            await self._connection.execute(_SQL["count_fact"], {"namespace_id": values["namespace_id"], "added": 1})
        await settle_beliefs(self._connection, row["id"], values, meeting)
        found: UUID = row["id"]
        return found

    async def _hold(self, source: Interaction, draft: FactDraft, revision: int, origin: str) -> MemoryId:
        held = await hold(self._connection, await self._fact_values(source, draft, revision, origin))
        await self._add_source(source, held, "semantic")
        return held

    async def _fact_values(self, source: Interaction, draft: FactDraft, revision: int, origin: str) -> dict[str, Any]:
        name = namespace_of(draft.scope, source.user_id)
        user_id = source.user_id if draft.scope is FactScope.USER else None
        namespace = await self._namespace(source.agent_id, draft.scope, name, user_id)
        supplied = any(draft.fact == each.fact for each in source.facts)
        return namespace | {
            "tenant_id": self._tenant_id,
            "agent_id": source.agent_id,
            "user_id": user_id,
            "namespace": name,
            "fact": draft.fact,
            "subject": draft.subject,
            "predicate": draft.predicate,
            "object": draft.object,
            "confidence": draft.confidence,
            "content_hash": content_hash(draft.fact),
            "valid_from": draft.valid_from or source.occurred_at,
            "metadata": Jsonb({"origin": CALLER if supplied else origin, "trust": source.trust}),
            "revision": revision,
        }

    async def _namespace(self, agent_id: AgentId, scope: FactScope, name: str, user_id: str | None) -> dict[str, Any]:
        owner = "" if scope is FactScope.WORLD else agent_id
        key = {"tenant_id": self._tenant_id, "agent_id": owner, "name": name, "user_id": user_id}
        (row,) = await self._rows("ensure_namespace", key | {"placement": _pool(self._tenant_id, owner, name)})
        return dict(row)

    async def _store_skill(
        self, source: Interaction, draft: SkillDraft, vector: Vectors, revision: int, origin: str
    ) -> MemoryId:
        # A skill learned in one user's conversation stays that user's: its words may be theirs.
        row = await upsert_skill(
            self._connection,
            tenant_id=self._tenant_id,
            agent_id=source.agent_id,
            namespace=namespace_of(FactScope.USER, source.user_id),
            user_id=source.user_id,
            draft=draft,
            vector=vector,
            model=self._model,
            revision=revision,
            source_id=source.id,
            origin=origin,
        )
        return MemoryId(row["id"])

    async def _count_outcome(self, interaction: Interaction, revision: int) -> None:
        """An interaction that names a skill says how the skill did; an unclear outcome says nothing."""
        if interaction.skill is None or interaction.outcome not in (Outcome.SUCCESS, Outcome.FAILURE):
            return
        await count_outcome(
            self._connection,
            tenant_id=self._tenant_id,
            agent_id=interaction.agent_id,
            skill_name=interaction.skill,
            user_id=interaction.user_id,
            success=interaction.outcome is Outcome.SUCCESS,
            reward=interaction.reward,
            revision=revision,
        )

    async def _add_source(self, source: Interaction, memory_id: MemoryId, tier: str) -> None:
        key = {"tenant_id": self._tenant_id, "agent_id": source.agent_id, "memory_id": memory_id}
        await self._connection.execute(_SQL["add_source"], key | {"tier": tier, "source_id": source.id})

    def _settle(
        self, item: Prepared, state: WriteState, *, reason: str | None = None, memory_ids: Sequence[MemoryId] = ()
    ) -> None:
        memory_id = item.interaction.id
        self._written.settlements[memory_id] = Settlement(
            operation_id=memory_id, state=state, reason=reason, memory_ids=memory_ids, attempts=item.attempts
        )

    def _entry(self, item: Prepared) -> LedgerEntry:
        return LedgerEntry(
            settlement=self._written.settlements[item.interaction.id],
            agent_id=item.interaction.agent_id,
            accepted_at=item.interaction.accepted_at,
            idempotency_hash=idempotency_hash(item.interaction),
        )

    async def _rows(self, name: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        return await (await self._connection.execute(_SQL[name], values)).fetchall()


def _user(interaction: Interaction) -> tuple[AgentId, UserId]:
    return interaction.agent_id, interaction.user_id


def idempotency_hash(interaction: Interaction) -> str | None:
    """SHA-256 of the caller's key, hexadecimal; keys themselves may hold personal data."""
    key = interaction.idempotency_key
    return None if key is None else hashlib.sha256(key.encode()).hexdigest()


def _extraction_state(item: Prepared) -> ExtractionState:
    if not item.interaction.infer:
        return ExtractionState.OFF
    return ExtractionState.DONE if item.classification.complete else ExtractionState.PENDING


def _pool(tenant_id: str, agent_id: str, name: str) -> int:
    """The pool of a new namespace; stored with it, so the rule may change."""
    identity = "\x00".join((tenant_id, agent_id, name)).encode()
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "big") % POOLS


def _by_tenant(items: Sequence[Prepared]) -> dict[TenantId, list[Prepared]]:
    groups: dict[TenantId, list[Prepared]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.interaction.tenant_id):
        groups[item.interaction.tenant_id].append(item)
    return groups
