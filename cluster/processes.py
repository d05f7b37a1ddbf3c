"""Children of the supervisor: started, recorded, ended, and found again after a crash."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from memory.errors import Conflict

#: Above the ports that Ray gives its workers (10002 to 19999), below the ephemeral range of Linux (32768).
FREE_PORTS = range(20_000, 30_000)
BOOT_TIME_ERROR_S = 60.0  # the clock may have been set since
SWEEPS = 3  # a Ray that is told to end may start workers before it does
SERVERS = {"postgres", "valkey-server", "ray", "raylet", "gcs_server", "haproxy"}


@dataclass(frozen=True, kw_only=True)
class Account:
    """The system user that a child runs as."""

    uid: int
    gid: int


def spawn(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    account: Account | None = None,
    cwd: Path = Path("/"),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, its output appended to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            start_new_session=True,
            cwd=cwd,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )


def session_of(pid: int) -> list[psutil.Process]:
    """All processes of the session that ``pid`` leads, itself included."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid:
                found.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def servers_of(folders: Sequence[Path]) -> set[int]:
    """Sessions of servers that work in one of these folders: also what a supervisor started just before its end."""
    places = tuple(f"{folder}/" for folder in folders)
    found = set()
    for process in psutil.process_iter(["name", "cmdline"]):
        try:
            if process.info["name"] in SERVERS and (
                process.cwd().startswith(places) or any(place in part for part in process.cmdline() for place in places)
            ):
                found.add(os.getsid(process.pid))
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def end_session(pid: int, *, grace_s: float) -> None:
    """Ask the session of ``pid`` to end, then end what is left of it, and what it started meanwhile."""
    for sweep in range(SWEEPS):
        found = session_of(pid)
        end([process for process in found if sweep == 0 or _runs(process)], grace_s=grace_s)


def end(processes: Sequence[psutil.Process], *, grace_s: float) -> None:
    """Ask the processes to end, then end what is left of them."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    for process in alive:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


class Record:
    """The children of an instance, on disk: pid and start time, so that a reused pid is never taken for a child."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, children: Mapping[str, int]) -> None:
        known = {name: [pid, started(pid)] for name, pid in children.items()}
        scratch = self._file.with_suffix(".new")
        scratch.write_text(json.dumps(known))
        scratch.replace(self._file)

    def read(self) -> dict[str, int]:
        """The children that still run."""
        return {name: pid for name, (pid, since) in self._known().items() if started(pid) == since}

    def sessions(self) -> list[int]:
        """Leaders, alive or dead, of sessions that may have members left.

        The kernel gives nobody the pid of a dead leader while its session has members. So a pid that somebody else has
        now has no session of ours, and neither has any pid from before the machine's last start.
        """
        return [
            pid
            for pid, since in self._known().values()
            if since is not None and since >= psutil.boot_time() - BOOT_TIME_ERROR_S and started(pid) in (since, None)
        ]

    def _known(self) -> dict[str, tuple[int, float | None]]:
        try:
            return {name: (pid, since) for name, (pid, since) in json.loads(self._file.read_text()).items()}
        except (FileNotFoundError, ValueError):
            return {}


def started(pid: int) -> float | None:
    """When the process started, in seconds since the epoch; ``None`` when there is none."""
    try:
        return round(psutil.Process(pid).create_time(), 1)
    except psutil.NoSuchProcess:
        return None


def free_port() -> int:
    """A free TCP port on loopback."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different free TCP ports on loopback, outside the kernel's ephemeral range.

    A port inside that range can become the local end of somebody's connection between now and its use: even a client
    that knocks at the port while nothing listens can end up connected to itself.
    """
    found: list[int] = []
    for port in random.sample(FREE_PORTS, k=len(FREE_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Conflict(f"no {count} ports of {FREE_PORTS.start} to {FREE_PORTS.stop} are free")


def _command(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return " ".join(process.cmdline()[:3]) or process.name()
    except psutil.Error:
        return "ended meanwhile"


def holder_of(port: int) -> str | None:
    """Who listens on a TCP port, in words; ``None`` when it is free."""
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port:
            name = "another user's process"
            if connection.pid is not None:
                name = f"process {connection.pid} ({_command(connection.pid)})"
            return name
    return None
