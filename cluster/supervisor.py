"""Starts the embedded system, keeps it running, and stops it.

The supervisor is small on purpose: it imports neither Ray nor the API, so that nothing they do can take it down.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Protocol

from cluster.haproxy import Listeners
from cluster.liveness import Liveness, answers
from cluster.models.server import ModelServer
from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from cluster.processes import Record, end_session, free_ports, holder_of, servers_of, started
from cluster.ray_head import RayHead
from cluster.valkey_server import ValkeyServer
from configs.model_profile import ModelProfile
from configs.settings import Settings
from memory.errors import Conflict, Misconfigured, MnemorayError, Unavailable

logger = logging.getLogger(__name__)
WATCH_S = 0.5
RESTART_PAUSE_S = 1.0
MAX_PAUSE_S = 15.0
MISSED_ANSWERS = 5  # 25 s: longer than Serve needs to replace a replica
TENANT = "default"
SOCKETS = ("postgres", "valkey", "ray", "ray-models", "haproxy")

Report = Callable[[str], None]


class Server(Protocol):
    """Something the supervisor starts, watches and stops."""

    name: str

    @property
    def pid(self) -> int | None: ...

    def alive(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Supervisor:
    """The embedded system under one data directory."""

    def __init__(
        self, settings: Settings, data: DataDir, report: Report, *, models: ModelProfile | None = None
    ) -> None:
        self._settings = settings
        self._data = data
        self._report = report
        self._stopping = threading.Event()
        self._record = Record(data.processes)
        self._postgres = None if settings.postgres_dsn else PostgresServer(data)
        self._valkey = None if settings.redis_url else ValkeyServer(data)
        self._listeners = Listeners.free()
        self._deployed = False
        self._liveness = Liveness(self.url)
        self._ray = None if settings.ray_address else self._ray_head()
        self._models = None if models is None else ModelServer(models, data)
        servers = (self._postgres, self._valkey, self._ray, self._models)
        self._servers: list[Server] = [server for server in servers if server is not None]

    def _ray_head(self) -> RayHead:
        gcs, dashboard = free_ports(2)
        return RayHead(self._data, self._settings, gcs_port=gcs, dashboard_port=dashboard, listeners=self._listeners)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._settings.serve.port}"

    @property
    def haproxy_stats_url(self) -> str | None:
        """Which replica got how many requests; ``None`` without an HAProxy of ours."""
        return self._listeners.stats_url if self._ray is not None and self._settings.serve.replicas > 1 else None

    @property
    def models(self) -> ModelServer | None:
        """The models that are served beside the API."""
        return self._models

    @property
    def api_key(self) -> str:
        return self._data.secret("api_key")

    def run(self, on_ready: Callable[[], None]) -> None:
        """Start everything, call ``on_ready``, watch until told to stop. Raises what keeps it from starting."""
        self._data.create()
        with self._only_one():
            signal.signal(signal.SIGTERM, self._on_signal)
            signal.signal(signal.SIGINT, self._on_signal)
            try:
                self._start()
                if not self._stopping.is_set():
                    on_ready()
                self._watch()
            finally:
                self._stop()

    def _on_signal(self, number: int, _: object) -> None:
        self._report(f"stopping ({signal.Signals(number).name})")
        self._stopping.set()

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Raises ``Conflict`` while another supervisor has this data directory."""
        with self._data.lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Conflict(f"{self._data.root} is in use: {_owner(lock)}; 'mnemoray down' stops it") from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _start(self) -> None:
        self._reap()
        self._check_port()
        for server in self._servers:
            self._step(server.name, server.start, done=self._done(server))
            self._remember()
        self._step("migrations", lambda: self._child("migrations"))
        self._step("shards and API", lambda: self._deploy("cluster.deploy"))
        self._announce()

    def _reap(self) -> None:
        """End what an earlier supervisor started and could not stop."""
        folders = [self._data.root, *(self._data.sockets(name) for name in SOCKETS)]
        for pid in {*self._record.sessions(), *servers_of(folders)} - {os.getsid(0)}:
            end_session(pid, grace_s=5.0)

    def _check_port(self) -> None:
        port = self._settings.serve.port
        if self._ray is not None and (holder := holder_of(port)):
            raise Conflict(f"port {port} is held by {holder}; stop it, or choose another with --port")
        if self._models is not None:
            self._models.check_port()

    def _step(self, name: str, action: Callable[[], None], *, done: str = "ready") -> None:
        if self._stopping.is_set():
            return
        started = time.monotonic()
        self._report(f"{name} …")
        action()
        self._report(f"{name}: {done} in {time.monotonic() - started:.1f} s")

    def _done(self, server: Server) -> str:
        return "started" if server is self._models else "ready"

    def _remember(self) -> None:
        self._record.write({server.name: server.pid for server in self._servers if server.pid is not None})

    def environment(self) -> Mapping[str, str]:
        """Settings of the programs that run against this instance."""
        keys = dict(self._settings.api_keys) or {self.api_key: TENANT}
        admin_keys = dict(self._settings.admin_keys) or {self._data.secret("admin_key"): TENANT}
        found = {
            "MNEMORAY_POSTGRES_DSN": self._settings.postgres_dsn or (self._postgres.dsn if self._postgres else ""),
            "MNEMORAY_REDIS_URL": self._settings.redis_url or (self._valkey.url if self._valkey else ""),
            "MNEMORAY_API_KEYS": json.dumps(keys),
            "MNEMORAY_ADMIN_KEYS": json.dumps(admin_keys),
            "MNEMORAY_SHARDS": str(self._settings.shards),
            "MNEMORAY_SERVE__PORT": str(self._settings.serve.port),
            "MNEMORAY_SERVE__REPLICAS": str(self._settings.serve.replicas),
        }
        ray = self._ray
        base = os.environ if ray is None else ray.environment() | {"RAY_ADDRESS": ray.address}
        return {**base, **found, **({} if self._models is None else self._models.settings())}

    def _deploy(self, *command: str) -> None:
        self._deployed = False
        self._child(*command)
        self._deployed = True
        self._liveness.reset()

    def _child(self, module: str, *arguments: str) -> None:
        """Run a module of this project to its end. Raises ``Unavailable`` with the end of what it printed."""
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            env=dict(self.environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        output, _ = child.communicate()
        with (self._data.log / f"{module}.log").open("a") as log:
            log.write(output)
        if child.returncode and not self._stopping.is_set():
            raise Unavailable(f"{module} failed; see {self._data.log / (module + '.log')}\n{output[-2000:]}")

    def _announce(self) -> None:
        endpoint = {
            "url": self.url,
            "key_file": str(self._data.secrets / "api_key"),
            "admin_key_file": str(self._data.secrets / "admin_key"),
            "supervisor": os.getpid(),
            "started": started(os.getpid()),
            "haproxy_stats": self.haproxy_stats_url,
            "pids": {server.name: server.pid for server in self._servers},
        }
        self._data.endpoint.write_text(json.dumps(endpoint))

    def _watch(self) -> None:
        pause_s = RESTART_PAUSE_S
        while not self._stopping.wait(WATCH_S):
            dead = [server for server in self._servers if not server.alive()]
            if dead or self._api_lost():
                pause_s = RESTART_PAUSE_S if self._revive(dead) else min(MAX_PAUSE_S, 2 * pause_s)
                self._stopping.wait(0 if pause_s == RESTART_PAUSE_S else pause_s)

    def _api_lost(self) -> bool:
        """The API could not be deployed, or Ray runs and does not bring it back."""
        if self._ray is None:
            return False
        return not self._deployed or self._liveness.missed() >= MISSED_ANSWERS

    def _revive(self, dead: list[Server]) -> bool:
        """Start again what died, the API too when it is lost; whether that worked."""
        try:
            for server in dead:
                logger.error("%s ended unexpectedly; it is started again", server.name)
                server.stop()
                self._step(f"{server.name} (again)", server.start, done=self._done(server))
                self._remember()
            if self._ray in dead:
                self._deployed = False
            if self._api_lost():
                logger.error("the API does not answer; it is deployed again")
                self._step("shards and API (again)", lambda: self._deploy("cluster.deploy", "--anew"))
            self._announce()
        except MnemorayError:
            logger.exception("the restart failed; it is tried again")
            return False
        return True

    def _stop(self) -> None:
        self._data.endpoint.unlink(missing_ok=True)
        for server in reversed(self._servers):
            server.stop()
        self._data.processes.unlink(missing_ok=True)
        self._report("stopped")


def _owner(lock: IO[str]) -> str:
    lock.seek(0)
    return f"process {lock.read().strip() or 'unknown'}"


def endpoint(data: DataDir) -> dict[str, object]:
    """What a running instance said of itself. Raises ``Misconfigured`` when none runs here."""
    try:
        found: dict[str, object] = json.loads(data.endpoint.read_text())
    except (FileNotFoundError, PermissionError, ValueError):
        raise Misconfigured(f"no instance runs in {data.root}; start one with 'mnemoray up'") from None
    return found


def is_ready(url: str) -> bool:
    return answers(url, "/health/ready")
