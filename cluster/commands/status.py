"""``mnemoray status``: what runs."""

from __future__ import annotations

import typer

from cluster.console import DataDirOption, JsonOption, data_dir, errors_explained, out, print_json
from cluster.exit_codes import ExitCode
from cluster.processes import Record
from cluster.supervisor import endpoint, is_ready


def status(data_dir_: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show the processes of a running system, and whether its API is ready."""
    with errors_explained():
        data = data_dir(data_dir_)
        found = endpoint(data)
    running = Record(data.processes).read()
    ready = is_ready(str(found["url"]))
    if as_json:
        print_json({"url": found["url"], "ready": ready, "processes": running, "data_dir": str(data.root)})
    else:
        out.print(f"API    {found['url']}: {'ready' if ready else 'NOT READY'}", markup=False)
        for name, pid in running.items():
            out.print(f"{name:<10} process {pid}", markup=False)
    if not ready:
        raise typer.Exit(ExitCode.UNAVAILABLE)
