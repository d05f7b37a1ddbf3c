"""A whole system, started as a user starts it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from cluster.processes import free_port


@dataclass
class Running:
    """One instance under a data directory of its own."""

    root: Path
    port: int

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cluster.cli", *arguments, "--data-dir", str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        assert not check or done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def up(self) -> None:
        self.cli("up", "--detach", "--port", str(self.port))

    def down(self) -> None:
        self.cli("down", check=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        return (self.root / "secrets" / "api_key").read_text().strip()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=30)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cli("status", "--json").stdout)
        return found

    def supervisor(self) -> int:
        return int(json.loads((self.root / "run" / "endpoint.json").read_text())["supervisor"])

    def processes(self) -> list[psutil.Process]:
        """The supervisor and everything that it started."""
        import os

        leaders = {self.supervisor(), *self.status()["processes"].values()}
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) in leaders or process.pid in leaders:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def named(self, title: str) -> list[psutil.Process]:
        """Ray workers show in their title what they run."""
        return [process for process in self.processes() if title in _title(process)]

    def await_ready(self, timeout_s: float = 120) -> None:
        wait_until(lambda: _ready(self.url), timeout_s, "the API is not ready again")


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=3).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.2)


@pytest.fixture(scope="module")
def instance() -> Iterator[Running]:
    """A system that runs for all tests of a module."""
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)
    running = Running(root, free_port())
    running.up()
    yield running
    running.down()
    shutil.rmtree(root, ignore_errors=True)
