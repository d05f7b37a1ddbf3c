"""Applies migrations.

A file ``NNNN_name.sql`` is applied once, in its own transaction, recorded in ``schema_migrations``. Migrations keep
code of the version before running: they add, and a later release removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import LiteralString

import psycopg
from psycopg import sql

from memory.errors import Misconfigured, Unavailable

_LOCK = 0x6D6E656D6F726179  # "mnemoray" in ASCII

_CONTROL: LiteralString = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS schema_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, kw_only=True)
class Migration:
    number: int
    name: str
    text: LiteralString  # SQL with ``{dimension}``; literal braces doubled


@dataclass(frozen=True, kw_only=True)
class FixedSettings:
    """What is decided when the database is created and cannot change by configuration."""

    partitions: int
    dimension: int

    def as_meta(self) -> Mapping[str, str]:
        return {"partitions": str(self.partitions), "embedding_dimension": str(self.dimension)}


def available() -> list[Migration]:
    """All migrations that ship with this code, in order."""
    files = (entry for entry in resources.files("migrations").joinpath("sql").iterdir() if entry.name.endswith(".sql"))
    ordered = sorted(files, key=lambda entry: entry.name)
    return [Migration(number=int(f.name[:4]), name=f.name[5:-4], text=f.read_text("utf-8")) for f in ordered]


async def migrate(dsn: str, fixed: FixedSettings) -> list[str]:
    """Bring the database at ``dsn`` to this code's version and return the names of what was applied.

    Safe to start twice at once: one waits for the other. Raises ``Misconfigured`` when the database is newer than
    the code or was created with other fixed settings, ``Unavailable`` when it does not answer.
    """
    try:
        connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    except psycopg.OperationalError as exc:
        raise Unavailable(f"PostgreSQL does not answer: {exc}") from exc
    async with connection:
        await connection.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        await connection.execute(_CONTROL)
        await _check_fixed(connection, fixed)
        return await _apply_missing(connection, fixed)


async def _check_fixed(connection: psycopg.AsyncConnection, fixed: FixedSettings) -> None:
    for key, value in fixed.as_meta().items():
        await connection.execute("INSERT INTO schema_meta VALUES (%s, %s) ON CONFLICT DO NOTHING", [key, value])
        cursor = await connection.execute("SELECT value FROM schema_meta WHERE key = %s", [key])
        row = await cursor.fetchone()
        if row is not None and row[0] != value:
            raise Misconfigured(
                f"this database was created with {key}={row[0]}, the settings say {value}; "
                f"set it to {row[0]}, or use another database"
            )


async def _apply_missing(connection: psycopg.AsyncConnection, fixed: FixedSettings) -> list[str]:
    migrations = available()
    cursor = await connection.execute("SELECT number FROM schema_migrations")
    done = {row[0] for row in await cursor.fetchall()}
    newest = max((migration.number for migration in migrations), default=0)
    if done and max(done) > newest:
        raise Misconfigured(
            f"the database is at migration {max(done)}, this code knows {newest}: "
            "start the newer release, or restore a backup made before the upgrade"
        )
    missing = [migration for migration in migrations if migration.number not in done]
    for migration in missing:
        await _apply(connection, migration, fixed)
    return [migration.name for migration in missing]


async def _apply(connection: psycopg.AsyncConnection, migration: Migration, fixed: FixedSettings) -> None:
    # Only the dimension, an integer, is put into the text, which ships with the code.
    async with connection.transaction():
        await connection.execute(sql.SQL(migration.text).format(dimension=sql.Literal(fixed.dimension)))
        await connection.execute(
            "INSERT INTO schema_migrations (number, name) VALUES (%s, %s)", [migration.number, migration.name]
        )


def main() -> None:
    """Migrate the database that the settings name."""
    from configs.settings import Settings

    settings = Settings()
    if settings.postgres_dsn is None:
        raise SystemExit("set MNEMORAY_POSTGRES_DSN, or use 'mnemoray up', which starts a server of its own")
    fixed = FixedSettings(partitions=settings.partitions, dimension=settings.embedding.dimension)
    try:
        applied = asyncio.run(migrate(settings.postgres_dsn, fixed))
    except (Misconfigured, Unavailable) as exc:
        raise SystemExit(str(exc)) from exc
    print("applied: " + ", ".join(applied) if applied else "nothing to apply")
