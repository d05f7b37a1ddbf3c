"""Fixtures that every suite may use: real servers, started once per session, stopped at its end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from cluster.valkey_server import ValkeyServer
from configs.settings import Settings
from migrations.runner import FixedSettings, migrate
from stores.postgres.database import Database
from stores.valkey.connection import Valkey, open_valkey


@pytest.fixture(scope="session")
def data() -> Iterator[DataDir]:
    """A data directory whose path is short and readable for the database's system user."""
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)
    data = DataDir(root)
    data.create()
    yield data
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(data: DataDir) -> Iterator[PostgresServer]:
    server = PostgresServer(data)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_server(data: DataDir) -> Iterator[ValkeyServer]:
    server = ValkeyServer(data)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def postgres_dsn(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of its own for each module, with the extension and without tables."""
    name = "t_" + request.module.__name__.rpartition(".")[2][:50]
    admin = postgres.dsn.replace("user=mnemoray", "user=postgres")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" OWNER mnemoray')
    with psycopg.connect(admin.replace("dbname=mnemoray", f"dbname={name}"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    yield postgres.dsn.replace("dbname=mnemoray", f"dbname={name}")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def redis_url(valkey_server: ValkeyServer) -> str:
    return valkey_server.url


@pytest.fixture(scope="session")
def fixed() -> FixedSettings:
    return FixedSettings(partitions=64, dimension=384)


@pytest.fixture
async def database(postgres_dsn: str, fixed: FixedSettings) -> AsyncIterator[Database]:
    await migrate(postgres_dsn, fixed)
    opened = Database(postgres_dsn, pool_size=8)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def valkey(redis_url: str) -> AsyncIterator[Valkey]:
    client = open_valkey(redis_url, cluster=False)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def settings(postgres_dsn: str, redis_url: str) -> Settings:
    return Settings(
        postgres_dsn=postgres_dsn,
        redis_url=redis_url,
        api_keys={"key-a": "tenant-a", "key-b": "tenant-b"},
        admin_keys={"admin-a": "tenant-a"},
    )
