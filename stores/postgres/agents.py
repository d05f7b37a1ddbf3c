"""Agents: their settings, and the lock and revision that order all changes of their memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from memory.records import AgentId, AgentProfile, Partition, TenantId
from stores.postgres import queries
from stores.postgres.database import Connection, Database

_SQL = queries.load("agents")


@dataclass(frozen=True, kw_only=True)
class AgentLock:
    """What a transaction holds on one agent."""

    revision: int  # of the change that is being made
    retention: Mapping[str, str]  # event type -> retention tier


async def lock_agents(
    connection: Connection, tenant_id: TenantId, agents: Sequence[tuple[AgentId, Partition]]
) -> dict[AgentId, AgentLock]:
    """Lock the agents' rows until the transaction ends and take each one's next revision.

    In id order, so that two transactions cannot wait for each other.
    """
    locks = {}
    for agent_id, partition in sorted(agents):
        key = {"tenant_id": tenant_id, "agent_id": agent_id, "partition": partition}
        row = await (await connection.execute(_SQL["lock_agent"], key)).fetchone()
        if row is None:  # an upsert returns its row
            raise AssertionError(f"agent {agent_id!r} could not be locked")
        locks[agent_id] = AgentLock(revision=row["revision"], retention=row["retention"])
    return locks


async def lock_agent(connection: Connection, tenant_id: TenantId, agent_id: AgentId, partition: Partition) -> int:
    """The same for one agent; returns the revision."""
    return (await lock_agents(connection, tenant_id, [(agent_id, partition)]))[agent_id].revision


class AgentStore:
    """Agents' own settings."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant_id: TenantId, agent_id: AgentId) -> AgentProfile | None:
        """The agent's settings; ``None`` before its first memory or setting."""
        async with self._database.transaction(tenant_id) as connection:
            return await profile(connection, tenant_id, agent_id)

    async def revision(self, tenant_id: TenantId, agent_id: AgentId) -> int:
        found = await self.get(tenant_id, agent_id)
        return found.revision if found else 0

    async def put(self, wanted: AgentProfile, partition: Partition) -> AgentProfile:
        """Replace the agent's settings; its memories and revision stay."""
        values = {
            "tenant_id": wanted.tenant_id,
            "agent_id": wanted.agent_id,
            "partition": partition,
            "team": wanted.team,
            "scoring": Jsonb(dict(wanted.scoring)),
            "budget_ratios": Jsonb(dict(wanted.budget_ratios)),
            "retention": Jsonb(dict(wanted.retention)),
        }
        async with self._database.transaction(wanted.tenant_id) as connection:
            row = await (await connection.execute(_SQL["put_agent"], values)).fetchone()
        return _profile(row or {})


async def profile(connection: Connection, tenant_id: TenantId, agent_id: AgentId) -> AgentProfile | None:
    """The agent's settings, inside a transaction of its tenant."""
    key = {"tenant_id": tenant_id, "agent_id": agent_id}
    row = await (await connection.execute(_SQL["get_agent"], key)).fetchone()
    return None if row is None else _profile(row)


def _profile(row: dict[str, Any]) -> AgentProfile:
    return AgentProfile(**row)
