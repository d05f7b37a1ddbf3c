"""Where the embedded system keeps its files."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from memory.errors import Misconfigured

SOCKET_PATH_MAX = 97  # bytes; the kernel's limit is 107, and HAProxy appends to the name while it starts
#: What a server adds to the path of its folder, at most.
LONGEST_SOCKET = {
    "ray": "/session_2026-01-01_00-00-00_000000_000000/sockets/plasma_store",
    "haproxy": f"/{'0' * 56}/metrics.sock",  # the folder is named by the Ray node's id
}


@dataclass(frozen=True)
class DataDir:
    """One embedded instance."""

    root: Path

    def create(self) -> None:
        """Make the folders; only the owner may look into secrets."""
        for folder in (self.root, self.log, self.run):
            folder.mkdir(parents=True, exist_ok=True)
        self.secrets.mkdir(mode=0o700, exist_ok=True)

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def endpoint(self) -> Path:
        return self.run / "endpoint.json"

    @property
    def processes(self) -> Path:
        return self.run / "processes.json"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    def sockets(self, name: str) -> Path:
        """A folder for a server's Unix sockets; a short one elsewhere when this path is too long for the kernel."""
        wanted = self.run / name
        if len(str(wanted).encode()) + len(LONGEST_SOCKET.get(name, LONGEST_SOCKET["ray"])) > SOCKET_PATH_MAX:
            digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:10]
            base = Path("/run") if os.geteuid() == 0 else Path(tempfile.gettempdir())
            wanted = base / f"mn-{digest}-{name}"
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() and wanted.stat().st_uid != os.geteuid():  # anybody can make a folder in /tmp
            raise Misconfigured(f"{wanted} belongs to another user; choose a shorter --data-dir")
        return wanted

    def secret(self, name: str) -> str:
        """A random token, made at the first start, readable by its owner only."""
        file = self.secrets / name
        if not file.exists():
            # Whole or not at all: an empty key would let everybody in.
            scratch = self.secrets / f"{name}.new"
            scratch.unlink(missing_ok=True)
            scratch.touch(mode=0o600)
            scratch.write_text(secrets.token_urlsafe(32))
            scratch.replace(file)
        return file.read_text().strip()
