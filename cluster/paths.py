"""Where the embedded system keeps its files."""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOCKET_PATH_MAX = 100  # bytes; the kernel's limit is 107


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
        if (
            len(str(wanted).encode()) + len("/session_2026-01-01_00-00-00_000000_000000/sockets/plasma_store")
            > SOCKET_PATH_MAX
        ):
            digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:10]
            wanted = Path(tempfile.gettempdir()) / f"mnemoray-{digest}-{name}"
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        return wanted

    def secret(self, name: str) -> str:
        """A random token, made at the first start, readable by its owner only."""
        file = self.secrets / name
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(secrets.token_urlsafe(32))
        return file.read_text().strip()
