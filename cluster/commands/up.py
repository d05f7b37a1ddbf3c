"""``mnemoray up``: start the whole system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from cluster.console import DataDirOption, data_dir, err, errors_explained, out
from cluster.paths import DataDir
from cluster.processes import spawn
from cluster.supervisor import Supervisor
from configs.model_profile import load_profile
from configs.settings import Settings
from memory.errors import Misconfigured, Unavailable

DETACH_TIMEOUT_S = 300.0


def up(
    detach: Annotated[bool, typer.Option("--detach", help="Return once it is ready; stop it with 'down'.")] = False,
    data_dir_: DataDirOption = None,
    port: Annotated[int | None, typer.Option(min=1, max=65534, help="Port of the HTTP API.")] = None,
    shards: Annotated[int | None, typer.Option(min=1, max=64, help="Agent shards.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, max=64, help="API replicas; several need HAProxy.")] = None,
    models: Annotated[
        str | None, typer.Option(help="Serve models too: a profile of configs/models, or a YAML file.")
    ] = None,
) -> None:
    """Start PostgreSQL, Valkey, Ray, the agent shards and the HTTP API. Ctrl-C stops them."""
    with errors_explained():
        settings = _settings(port, shards, replicas)
        data = data_dir(data_dir_ or settings.data_dir)
        profile = None if models is None else load_profile(models)
        if detach:
            _detached(data, sys.argv[1:])
            return
        supervisor = Supervisor(settings, data, report=_say, models=profile)
        supervisor.run(on_ready=lambda: _welcome(supervisor, data))


def _settings(port: int | None, shards: int | None, replicas: int | None) -> Settings:
    try:
        settings = Settings()
    except ValueError as exc:
        raise Misconfigured(f"the settings are wrong: {exc}") from exc
    serve = {name: value for name, value in (("port", port), ("replicas", replicas)) if value is not None}
    changes = {"serve": settings.serve.model_copy(update=serve)} | ({} if shards is None else {"shards": shards})
    return settings.model_copy(update=changes)


def _say(text: str) -> None:
    out.print(f"  {text}", markup=False, highlight=False)


def _welcome(supervisor: Supervisor, data: DataDir) -> None:
    where = "" if data == data_dir(None) else f" --data-dir {data.root}"
    program = Path(sys.executable).parent / "mnemoray"
    example = Path(__file__).parents[2] / "docs" / "examples" / "conversation.json"
    lines = [
        "",
        f"Mnemoray is ready at {supervisor.url} (API documentation: {supervisor.url}/docs)",
        f"API key: {supervisor.api_key}",
        *_statistics(supervisor),
        *_models(supervisor),
        "",
        "In a second terminal:",
        f"  {program} import {example} --agent demo --user ann{where}",
        f'  {program} recall "What does Ann drink?" --agent demo --user ann{where}',
        f'  {program} context "What does Ann drink?" --agent demo --user ann{where}',
        "",
        f"  curl -s {supervisor.url}/v1/agents/demo/memories -H 'Authorization: Bearer {supervisor.api_key}' \\",
        '    -H \'Content-Type: application/json\' -d \'{"user_id": "ann", "content": "I prefer green tea."}\'',
        "",
        "Ctrl-C stops everything.",
    ]
    out.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _statistics(supervisor: Supervisor) -> list[str]:
    url = supervisor.haproxy_stats_url
    return [] if url is None else [f"Requests per replica: {url}"]


def _models(supervisor: Supervisor) -> list[str]:
    served = supervisor.models
    return [] if served is None else [f"Models: {served.profile.url}, once they are loaded (log: {served.log})"]


def _detached(data: DataDir, arguments: list[str]) -> None:
    """Run the same command in the background and follow its log until it is ready or has failed."""
    data.create()
    log = data.log / "up.log"
    offset = log.stat().st_size if log.exists() else 0
    command = [str(Path(sys.executable).parent / "mnemoray"), *(a for a in arguments if a != "--detach")]
    child = spawn(command, log=log, env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}, cwd=Path.cwd())
    deadline = time.monotonic() + DETACH_TIMEOUT_S
    while time.monotonic() < deadline:
        with log.open("rb") as stream:
            stream.seek(offset)
            text = stream.read().decode(errors="replace")
        offset += len(text.encode())
        out.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        if data.endpoint.exists() and "Ctrl-C stops everything." in text:
            out.print(f"It runs in the background; 'mnemoray down' stops it (log: {log}).", markup=False)
            return
        _check(child, log)
        time.sleep(0.2)
    raise Unavailable(f"not ready in {DETACH_TIMEOUT_S:.0f} s; see {log}")


def _check(child: subprocess.Popen[bytes], log: Path) -> None:
    if child.poll() is not None:
        err.print(log.read_text(errors="replace")[-2000:], markup=False, highlight=False)
        raise Unavailable(f"it did not start; see {log}")
