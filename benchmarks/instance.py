"""The instance that a benchmark talks to."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.processes import free_port


@dataclass(frozen=True)
class Instance:
    """Where the API is, and its key."""

    url: str
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextmanager
def instance(url: str | None, key: str | None) -> Iterator[Instance]:
    """The one that was named, or a fresh one in a temporary folder that goes when the block ends."""
    if url is not None:
        yield Instance(url.rstrip("/"), key or "")
        return
    with started() as (target, _):
        yield target


@contextmanager
def started(*options: str) -> Iterator[tuple[Instance, Path]]:
    """A fresh instance and its data directory, which goes when the block ends; ``options`` are those of ``up``."""
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)
    try:
        _mnemoray("up", "--detach", "--data-dir", str(root), "--port", str(free_port()), *options)
        found = json.loads((root / "run" / "endpoint.json").read_text())
        yield Instance(found["url"], Path(found["key_file"]).read_text().strip()), root
    finally:
        _mnemoray("down", "--data-dir", str(root), check=False)
        shutil.rmtree(root, ignore_errors=True)


def _mnemoray(*arguments: str, check: bool = True) -> None:
    subprocess.run([sys.executable, "-m", "cluster.cli", *arguments], check=check, stdout=sys.stderr)


def machine() -> dict[str, object]:
    """Facts that a figure cannot be read without."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.machine()
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
