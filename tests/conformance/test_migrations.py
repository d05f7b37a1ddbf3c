"""Migrations, the schema they make, and the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import LiteralString

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, conninfo, errors, sql

from memory.errors import Misconfigured, Unavailable
from migrations.runner import FixedSettings, available, migrate

FIXED = FixedSettings(partitions=64, dimension=8)
SCHEMA = sql.Identifier("migrations_test")


@pytest_asyncio.fixture(loop_scope="session")
async def empty(postgres_dsn: str) -> AsyncIterator[str]:
    """The DSN of an empty schema."""
    async with await AsyncConnection.connect(postgres_dsn, autocommit=True) as connection:
        await connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(SCHEMA))
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(SCHEMA))
        yield conninfo.make_conninfo(postgres_dsn, options="-c search_path=migrations_test,public -c timezone=UTC")
        await connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(SCHEMA))


@pytest_asyncio.fixture(loop_scope="session")
async def migrated(empty: str) -> str:
    await migrate(empty, FIXED)
    return empty


@pytest_asyncio.fixture(loop_scope="session")
async def connection(migrated: str) -> AsyncIterator[AsyncConnection]:
    """As the application connects, for the tenant ``acme``."""
    async with await AsyncConnection.connect(migrated, autocommit=True) as connection:
        await connection.execute("SELECT set_config('mnemoray.tenant', 'acme', false)")
        yield connection


async def test_applies_all_in_order_and_then_nothing(empty: str) -> None:
    assert await migrate(empty, FIXED) == [migration.name for migration in available()]
    assert await migrate(empty, FIXED) == []


async def test_several_at_once_apply_each_migration_once(empty: str) -> None:
    applied = await asyncio.gather(*(migrate(empty, FIXED) for _ in range(4)))
    assert sorted(name for names in applied for name in names) == sorted(migration.name for migration in available())


async def test_a_newer_database_is_refused(migrated: str, connection: AsyncConnection) -> None:
    await connection.execute("INSERT INTO schema_migrations (number, name) VALUES (9999, 'from_the_future')")
    with pytest.raises(Misconfigured, match="9999"):
        await migrate(migrated, FIXED)


@pytest.mark.parametrize(
    ("fixed", "named"),
    [
        (FixedSettings(partitions=64, dimension=16), "embedding_dimension=8"),
        (FixedSettings(partitions=32, dimension=8), "partitions=64"),
    ],
)
async def test_other_fixed_settings_are_refused(migrated: str, fixed: FixedSettings, named: str) -> None:
    with pytest.raises(Misconfigured, match=named):
        await migrate(migrated, fixed)


async def test_a_refusal_changes_nothing(migrated: str) -> None:
    with pytest.raises(Misconfigured):
        await migrate(migrated, FixedSettings(partitions=64, dimension=16))
    assert await migrate(migrated, FIXED) == []


async def test_no_server_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1", FIXED)


# The audit log


@pytest.mark.parametrize(
    "change", ["UPDATE audit_log SET action = 'other'", "DELETE FROM audit_log", "TRUNCATE audit_log"]
)
async def test_the_audit_log_is_append_only(connection: AsyncConnection, change: LiteralString) -> None:
    await connection.execute("INSERT INTO audit_log (tenant_id, action, subject) VALUES ('acme', 'erase', 'user:1')")
    with pytest.raises(errors.RaiseException, match="append-only"):
        await connection.execute(change)
    cursor = await connection.execute("SELECT action FROM audit_log")
    assert await cursor.fetchall() == [("erase",)]


# The schema of the specification

COLUMNS = {
    "episodic_memory": {
        "id": "uuid", "agent_id": "character varying", "user_id": "character varying",
        "session_id": "character varying", "event_type": "character varying", "content": "text",
        "content_hash": "character", "outcome": "character varying", "importance": "real", "embedding": "USER-DEFINED",
        "access_count": "integer", "last_accessed_at": "timestamp with time zone",
        "retention_tier": "character varying", "is_deleted": "boolean", "metadata": "jsonb",
        "created_at": "timestamp with time zone", "expires_at": "timestamp with time zone",
    },
    "semantic_memory": {
        "id": "uuid", "agent_id": "character varying", "namespace": "character varying", "fact": "text",
        "subject": "character varying", "predicate": "character varying", "object": "text", "confidence": "real",
        "source_episode_id": "uuid", "embedding": "USER-DEFINED", "embedding_model": "character varying",
        "content_hash": "character", "supersedes": "uuid", "valid_from": "timestamp with time zone",
        "valid_until": "timestamp with time zone", "is_deleted": "boolean",
        "created_at": "timestamp with time zone", "updated_at": "timestamp with time zone",
    },
    "procedural_memory": {
        "id": "uuid", "agent_id": "character varying", "skill_name": "character varying", "trigger_pattern": "text",
        "policy": "jsonb", "tool_sequence": "jsonb", "success_count": "integer", "failure_count": "integer",
        "success_rate": "real", "avg_reward": "real", "embedding": "USER-DEFINED", "version": "integer",
        "created_at": "timestamp with time zone", "updated_at": "timestamp with time zone",
    },
}  # fmt: skip
INDEXES = {
    "idx_episodic_agent_recent", "idx_episodic_embedding", "idx_episodic_expires", "idx_semantic_embedding",
    "idx_semantic_namespace", "idx_semantic_subject_pred", "idx_procedural_embedding", "idx_procedural_agent_rank",
    "uq_semantic_dedup", "uq_procedural_skill",
}  # fmt: skip


@pytest.mark.parametrize("table", sorted(COLUMNS))
async def test_the_columns_of_the_specification_are_there(connection: AsyncConnection, table: str) -> None:
    cursor = await connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'migrations_test' AND table_name = %s",
        [table],
    )
    assert COLUMNS[table].items() <= dict(await cursor.fetchall()).items()


async def test_the_indexes_of_the_specification_are_there(connection: AsyncConnection) -> None:
    cursor = await connection.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'migrations_test'")
    assert {row[0] for row in await cursor.fetchall()} >= INDEXES


async def test_vectors_have_the_dimension_of_the_settings(connection: AsyncConnection) -> None:
    cursor = await connection.execute(
        "SELECT DISTINCT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = ANY(ARRAY['episodic_memory', 'semantic_memory', 'procedural_memory']::regclass[]) "
        "AND attname = 'embedding'"
    )
    assert await cursor.fetchall() == [("vector(8)",)]


EPISODE = (
    "INSERT INTO episodic_memory (tenant_id, agent_id, user_id, session_id, event_type, content, content_hash, "
    "importance, outcome, retention_tier, revision) VALUES ('acme', 'a', 'u', 's', %(event_type)s, 'x', 'h', "
    "%(importance)s, %(outcome)s, %(retention_tier)s, 1)"
)
GOOD = {"event_type": "action", "importance": 0.5, "outcome": "success", "retention_tier": "session"}


async def test_an_episode_is_accepted(connection: AsyncConnection) -> None:
    await connection.execute("SELECT ensure_episodic_partition(now())")
    await connection.execute(EPISODE, GOOD)


@pytest.mark.parametrize(
    "bad",
    [{"event_type": "dream"}, {"importance": 1.1}, {"importance": -0.1}, {"outcome": "?"}, {"retention_tier": ""}],
)
async def test_episodes_outside_the_vocabulary_are_refused(connection: AsyncConnection, bad: dict[str, object]) -> None:
    await connection.execute("SELECT ensure_episodic_partition(now())")
    with pytest.raises(errors.CheckViolation):
        await connection.execute(EPISODE, GOOD | bad)


async def test_an_episode_written_by_code_of_before_is_a_users(connection: AsyncConnection) -> None:
    await connection.execute("SELECT ensure_episodic_partition(now())")
    await connection.execute(EPISODE, GOOD)
    cursor = await connection.execute("SELECT DISTINCT trust FROM episodic_memory")
    assert await cursor.fetchall() == [("user",)]
    with pytest.raises(errors.CheckViolation):
        await connection.execute("UPDATE episodic_memory SET trust = 'root'")


async def add_fact(connection: AsyncConnection, namespace: int, confidence: float = 0.7) -> None:
    await connection.execute(
        "INSERT INTO semantic_memory (tenant_id, agent_id, namespace, namespace_id, placement, fact, confidence, "
        "embedding, embedding_model, content_hash, revision) "
        "VALUES ('acme', 'a', 'agent', %s, 0, 'x', %s, '[1,0,0,0,0,0,0,0]', 'm', 'h', 1)",
        [namespace, confidence],
    )


async def add_namespace(connection: AsyncConnection, name: str) -> int:
    cursor = await connection.execute(
        "INSERT INTO namespaces (tenant_id, agent_id, name, placement) VALUES ('acme', 'a', %s, 0) "
        "RETURNING namespace_id",
        [name],
    )
    (row,) = await cursor.fetchall()
    return int(row[0])


async def test_a_fact_is_in_a_namespace_once(connection: AsyncConnection) -> None:
    one, other = await add_namespace(connection, "agent"), await add_namespace(connection, "user:1")
    await add_fact(connection, one)
    await add_fact(connection, other)
    with pytest.raises(errors.UniqueViolation):
        await add_fact(connection, one)


async def test_confidence_is_a_share(connection: AsyncConnection) -> None:
    with pytest.raises(errors.CheckViolation):
        await add_fact(connection, await add_namespace(connection, "agent"), confidence=1.5)


async def test_the_success_rate_follows_from_the_counts(connection: AsyncConnection) -> None:
    await connection.execute(
        "INSERT INTO procedural_memory (tenant_id, agent_id, skill_name, trigger_pattern, policy, success_count, "
        "failure_count, revision) "
        "VALUES ('acme', 'a', 's', 't', '{}', 3, 1, 1), ('acme', 'a', 's2', 't', '{}', 0, 0, 1)"
    )
    cursor = await connection.execute("SELECT success_rate FROM procedural_memory ORDER BY skill_name")
    assert await cursor.fetchall() == [(0.75,), (0.0,)]


async def test_a_tenant_cannot_write_for_another(connection: AsyncConnection) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        await connection.execute("INSERT INTO agents (tenant_id, agent_id, partition) VALUES ('other', 'a', 0)")


async def test_a_tenant_quarantines_nothing_for_another(connection: AsyncConnection) -> None:
    namespace = await add_namespace(connection, "agent")
    hold: LiteralString = (
        "INSERT INTO quarantined_facts (tenant_id, agent_id, namespace, namespace_id, placement, fact, confidence, "
        "content_hash, valid_from, revision) VALUES (%s, 'a', 'agent', %s, 0, 'x', 0.3, 'h', now(), 1)"
    )
    await connection.execute(hold, ["acme", namespace])
    with pytest.raises(errors.InsufficientPrivilege):
        await connection.execute(hold, ["other", namespace])
    await connection.execute("SELECT set_config('mnemoray.tenant', 'other', false)")
    assert await (await connection.execute("SELECT * FROM quarantined_facts")).fetchall() == []


# Months


async def test_a_month_is_made_on_demand_for_any_date(connection: AsyncConnection) -> None:
    names = []
    for moment in (datetime(1999, 12, 31, 23, 59, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)):
        cursor = await connection.execute("SELECT ensure_episodic_partition(%s)", [moment])
        names += [row[0] for row in await cursor.fetchall()]
        await connection.execute(
            "INSERT INTO episodic_memory (tenant_id, agent_id, user_id, session_id, event_type, content, content_hash, "
            "revision, created_at) VALUES ('acme', 'a', 'u', 's', 'action', 'x', 'h', 1, %s)",
            [moment],
        )
    assert names == ["episodic_memory_1999_12", "episodic_memory_2000_01"]
    cursor = await connection.execute("SELECT tableoid::regclass::text FROM episodic_memory ORDER BY created_at")
    assert [row[0] for row in await cursor.fetchall()] == names


async def test_months_are_of_utc_whatever_the_session_says(connection: AsyncConnection) -> None:
    await connection.execute("SET timezone = 'Pacific/Auckland'")
    cursor = await connection.execute("SELECT ensure_episodic_partition('2001-01-31 23:30:00+00')")
    assert await cursor.fetchall() == [("episodic_memory_2001_01",)]


async def test_a_month_made_at_once_by_many_is_made_once(migrated: str) -> None:
    async def make() -> str:
        async with await AsyncConnection.connect(migrated, autocommit=True) as connection:
            cursor = await connection.execute("SELECT ensure_episodic_partition('2010-06-15')")
            return str((await cursor.fetchall())[0][0])

    assert set(await asyncio.gather(*(make() for _ in range(8)))) == {"episodic_memory_2010_06"}


async def test_a_new_month_has_every_index_and_guard(connection: AsyncConnection) -> None:
    await connection.execute("SELECT ensure_episodic_partition('2011-01-01')")
    count = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass"
    (month,) = await (await connection.execute(count, ["episodic_memory_2011_01"])).fetchall()
    assert month == (await (await connection.execute(count, ["episodic_memory"])).fetchall())[0]
    cursor = await connection.execute(
        "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = 'episodic_memory_2011_01'::regclass"
    )
    assert await cursor.fetchall() == [(True,)]


async def test_a_month_that_was_dropped_is_made_again(connection: AsyncConnection) -> None:
    await connection.execute("SELECT ensure_episodic_partition('2012-01-01')")
    await connection.execute("DROP TABLE episodic_memory_2012_01")
    await connection.execute("SELECT ensure_episodic_partition('2012-01-01')")
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        await connection.execute(
            "INSERT INTO episodic_memory (tenant_id, agent_id, user_id, session_id, event_type, content, content_hash, "
            "revision, created_at) VALUES ('acme', 'a', 'u', 's', 'action', 'x', 'h', 1, '2012-02-01')"
        )
