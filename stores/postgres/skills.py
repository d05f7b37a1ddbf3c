"""Skills: procedural memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory.errors import NotFound
from memory.ports import Vectors
from memory.records import AgentId, FactScope, Partition, SkillDraft, TenantId, UserId, namespace_of
from stores.postgres import queries
from stores.postgres.agents import lock_agent
from stores.postgres.database import Connection, Database

_SQL = queries.load("skills")
Row = dict[str, Any]
CALLER = "caller"  # origin of what was supplied, not found by rules or a model


async def upsert_skill(
    connection: Connection,
    *,
    tenant_id: TenantId,
    agent_id: AgentId,
    namespace: str,
    user_id: UserId | None,
    draft: SkillDraft,
    vector: Vectors,
    model: str,
    revision: int,
    source_id: UUID | None = None,
    origin: str = CALLER,
) -> Row:
    """Create a skill, or add the draft's outcomes to it and take its newer steps. ``origin`` is what found them."""
    values = {
        "tenant_id": tenant_id,
        "agent_id": agent_id,
        "user_id": user_id,
        "namespace": namespace,
        "skill_name": draft.skill_name,
        "trigger_pattern": draft.trigger_pattern,
        "policy": Jsonb(dict(draft.policy)),
        "tool_sequence": None if draft.tool_sequence is None else Jsonb(list(draft.tool_sequence)),
        "successes": draft.successes,
        "failures": draft.failures,
        "rewards": 0 if draft.reward is None else 1,
        "reward": draft.reward or 0.0,
        "embedding": vector,
        "embedding_model": model,
        "revision": revision,
        "metadata": Jsonb({"origin": origin}),
    }
    row = await (await connection.execute(_SQL["upsert_skill"], values)).fetchone()
    if row is None:  # an upsert returns its row
        raise AssertionError(f"skill {draft.skill_name!r} could not be stored")
    if source_id is not None:
        key = {"tenant_id": tenant_id, "agent_id": agent_id, "memory_id": row["id"], "source_id": source_id}
        await connection.execute(_SQL["add_skill_source"], key)
    return row


async def count_outcome(
    connection: Connection,
    *,
    tenant_id: TenantId,
    agent_id: AgentId,
    skill_name: str,
    user_id: UserId | None,
    success: bool,
    reward: float | None,
    revision: int,
) -> Row | None:
    """Add one outcome; ``None`` when there is no such skill."""
    values = {
        "tenant_id": tenant_id,
        "agent_id": agent_id,
        "skill_name": skill_name,
        "namespaces": visible_namespaces(user_id),
        "successes": int(success),
        "failures": int(not success),
        "rewards": 0 if reward is None else 1,
        "reward": reward or 0.0,
        "revision": revision,
    }
    return await (await connection.execute(_SQL["record_outcome"], values)).fetchone()


def visible_namespaces(user_id: UserId | None) -> list[str]:
    """The agent's own skills, and those of the user whom it serves."""
    own = [] if user_id is None else [namespace_of(FactScope.USER, user_id)]
    return [*own, FactScope.AGENT.value]


class SkillStore:
    """Skills of agents. Rows are dictionaries with the table's columns."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self,
        tenant_id: TenantId,
        agent_id: AgentId,
        *,
        namespace: str,
        user_id: UserId | None,
        draft: SkillDraft,
        vector: Vectors,
        model: str,
        partition: Partition,
    ) -> tuple[Row, int]:
        """Create or replace a skill; returns its row and the agent's revision."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            row = await upsert_skill(
                connection,
                tenant_id=tenant_id,
                agent_id=agent_id,
                namespace=namespace,
                user_id=user_id,
                draft=draft,
                vector=vector,
                model=model,
                revision=revision,
            )
        return row, revision

    async def record_outcome(
        self,
        tenant_id: TenantId,
        agent_id: AgentId,
        skill_name: str,
        *,
        user_id: UserId | None,
        success: bool,
        reward: float | None,
        partition: Partition,
    ) -> tuple[Row, int]:
        """Count an outcome; returns the row and the agent's revision. Raises ``NotFound``."""
        async with self._database.transaction(tenant_id) as connection:
            revision = await lock_agent(connection, tenant_id, agent_id, partition)
            row = await count_outcome(
                connection,
                tenant_id=tenant_id,
                agent_id=agent_id,
                skill_name=skill_name,
                user_id=user_id,
                success=success,
                reward=reward,
                revision=revision,
            )
            if row is None:
                raise _missing(skill_name)
        return row, revision

    async def get(self, tenant_id: TenantId, agent_id: AgentId, skill_name: str, *, user_id: UserId | None) -> Row:
        """The skill that applies for this user. Raises ``NotFound``."""
        values = {"tenant_id": tenant_id, "agent_id": agent_id, "skill_name": skill_name}
        namespaces = {"namespaces": visible_namespaces(user_id)}
        async with self._database.transaction(tenant_id) as connection:
            row = await (await connection.execute(_SQL["get_skill"], values | namespaces)).fetchone()
        if row is None:
            raise _missing(skill_name)
        return row

    async def list(
        self, tenant_id: TenantId, agent_id: AgentId, *, user_id: UserId | None, limit: int
    ) -> Sequence[Row]:
        """Skills by proven reliability, best first."""
        values = {"tenant_id": tenant_id, "agent_id": agent_id, "namespaces": visible_namespaces(user_id)}
        async with self._database.transaction(tenant_id) as connection:
            return await (await connection.execute(_SQL["list_skills"], values | {"limit": limit})).fetchall()


def _missing(skill_name: str) -> NotFound:
    return NotFound(f"no skill {skill_name!r}; create it with PUT, or list what there is")
