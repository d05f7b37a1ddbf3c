"""The embedded Ray: one head node on loopback, closed to strangers by a token."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cluster.haproxy import Listeners, serve_environment
from cluster.paths import DataDir
from cluster.processes import end_session, spawn
from configs.settings import Settings
from memory.errors import Unavailable

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 8.0
LOGICAL_CPUS = 64  # Ray's unit of placement, not of speed: shards and replicas mostly wait
OBJECT_STORE_BYTES = 200 * 1024 * 1024


class RayHead:
    """One ``ray start --head --block``; its session holds every Ray process of the node."""

    name = "Ray"

    def __init__(
        self, data: DataDir, settings: Settings, *, gcs_port: int, dashboard_port: int, listeners: Listeners
    ) -> None:
        self._data = data
        self._settings = settings
        self._gcs_port = gcs_port
        self._dashboard_port = dashboard_port
        self._listeners = listeners
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._gcs_port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def environment(self) -> dict[str, str]:
        """What every process of this Ray cluster, and every program that connects to it, must see."""
        return os.environ | ray_environment(self._settings, self._data, self._listeners)

    def start(self) -> None:
        """Start the head node and wait until it answers."""
        command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
        command += ["--node-ip-address=127.0.0.1", f"--port={self._gcs_port}", "--dashboard-host=127.0.0.1"]
        command += [f"--dashboard-port={self._dashboard_port}", "--include-dashboard=true"]
        command += [f"--num-cpus={LOGICAL_CPUS}", f"--object-store-memory={OBJECT_STORE_BYTES}"]
        command += [f"--temp-dir={self._data.sockets('ray')}"]
        self._process = spawn(command, log=self._data.log / "ray.log", env=self.environment())
        self._await_answer()

    def stop(self) -> None:
        """End every process of the node, also what a killed head left behind."""
        if self._process is not None:
            end_session(self._process.pid, grace_s=STOP_TIMEOUT_S)
            self._process.wait()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        check = [str(Path(sys.executable).parent / "ray"), "health-check", "--address", self.address]
        while time.monotonic() < deadline:
            if not self.alive():
                raise Unavailable(f"Ray ended; see {self._data.log / 'ray.log'}")
            done = subprocess.run(check, env=self.environment(), capture_output=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.2)
        raise Unavailable(f"Ray does not answer; see {self._data.log / 'ray.log'}")


def ray_environment(settings: Settings, data: DataDir, listeners: Listeners) -> Mapping[str, str]:
    """Token authentication, and Serve without a proxy hop between a client and its replica."""
    port = settings.serve.port
    common = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": data.secret("ray_token"),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
        "RAY_SERVE_DEFAULT_HTTP_HOST": settings.serve.host,
        # A replica that replaces another must find the same port free at once.
        "RAY_SERVE_PORT_QUARANTINE_S": "0",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        # The virtual environment is the runtime environment.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    if settings.serve.replicas == 1:
        ports = {
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(port),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(port + 1),
        }
        return common | ports
    return common | serve_environment(data.sockets("haproxy"), listeners)
