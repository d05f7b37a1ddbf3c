"""What commands print, and how their errors end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cluster.exit_codes import ExitCode
from cluster.paths import DataDir
from configs.settings import default_data_dir
from memory.errors import Misconfigured, MnemorayError, NotFound, Unavailable

out = Console()
err = Console(stderr=True)

DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help="Where the embedded system keeps its data.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def data_dir(given: Path | None) -> DataDir:
    return DataDir((given or default_data_dir()).expanduser().resolve())


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


@contextmanager
def errors_explained() -> Iterator[None]:
    """One line that says what to do, and an exit code, instead of a traceback."""
    try:
        yield
    except MnemorayError as exc:
        err.print(f"error: {exc}", style="red", markup=False, highlight=False)
        raise typer.Exit(_code(exc)) from exc


def _code(exc: MnemorayError) -> ExitCode:
    if isinstance(exc, Unavailable | Misconfigured):
        return ExitCode.UNAVAILABLE
    return ExitCode.NOT_FOUND if isinstance(exc, NotFound) else ExitCode.FAILED
