"""The program that serves the models: prepares their files, starts a Ray, deploys, and ends when they are lost.

``python -m cluster.models.host PROFILE.json FOLDER``, in ``.venv-llm``. It starts nothing again itself: it ends, and
whoever started it starts it anew. All its processes are in its session.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import ray
from ray import serve as ray_serve

from cluster.liveness import Liveness
from cluster.models.application import build_application
from cluster.models.ingress import APPLICATION
from cluster.models.weights import is_local, prepared
from cluster.processes import free_ports
from configs.model_profile import ModelProfile
from memory.errors import Unavailable

logger = logging.getLogger(__name__)
LOGICAL_CPUS = 64  # Ray's unit of placement; how many threads a model has is the engine's matter
OBJECT_STORE_BYTES = 200 * 2**20
CONNECT_TIMEOUT_S = 90.0
WATCH_S = 1.0
MISSED_ANSWERS = 24  # two minutes: longer than Serve needs to replace a replica of a small model


def host(profile: ModelProfile, folder: Path, sockets: Path) -> None:
    """Serve until something is lost. Raises what keeps it from starting, or ``Unavailable``."""
    sources = {model.name: prepared(model.source, folder) for model in profile.models}
    if all(is_local(model.source) for model in profile.models):
        os.environ["HF_HUB_OFFLINE"] = "1"  # nothing asks the hub, not even for a newer version
    gcs, dashboard, client = free_ports(3)
    head = subprocess.Popen(_ray_command(gcs, dashboard, client, sockets), stdin=subprocess.DEVNULL)
    _connect(f"127.0.0.1:{gcs}", head)
    options = {"host": "127.0.0.1", "port": profile.port, "request_timeout_s": profile.request_timeout_s}
    ray_serve.start(http_options=options)
    ray_serve.run(build_application(profile, sources), name=APPLICATION, route_prefix="/")
    logger.info("the models are served at %s", profile.url)
    _watch(head, Liveness(profile.url, "/models"))


def _ray_command(gcs: int, dashboard: int, client: int, sockets: Path) -> Sequence[str]:
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address=127.0.0.1", f"--port={gcs}", "--dashboard-host=127.0.0.1"]
    command += [f"--dashboard-port={dashboard}", "--include-dashboard=false", f"--ray-client-server-port={client}"]
    return [
        *command,
        f"--temp-dir={sockets}",
        f"--num-cpus={LOGICAL_CPUS}",
        f"--object-store-memory={OBJECT_STORE_BYTES}",
    ]


def _connect(address: str, head: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while time.monotonic() < deadline and head.poll() is None:
        with suppress(ConnectionError, RuntimeError):
            ray.init(address=address, log_to_driver=False)
            return
        time.sleep(0.5)
    raise Unavailable(f"Ray does not answer at {address}")


def _watch(head: subprocess.Popen[bytes], liveness: Liveness) -> None:
    while head.poll() is None and liveness.missed() < MISSED_ANSWERS:
        time.sleep(WATCH_S)
    raise Unavailable("Ray ended" if head.poll() is not None else "the models do not answer")


def main(arguments: Sequence[str]) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    profile, folder, sockets = map(Path, arguments)
    host(ModelProfile.model_validate_json(profile.read_text()), folder, sockets)


if __name__ == "__main__":
    main(sys.argv[1:])
