"""``mnemoray import``: remember a file of conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from cluster import importing
from cluster.api import Api, KeyOption, UrlOption, connected
from cluster.console import DataDirOption, JsonOption, err, errors_explained, out, print_json
from cluster.exit_codes import ExitCode
from memory.errors import InvalidInput
from memory.records import Trust
from pipelines.conversations import Defaults, Skipped, WriteItem, read
from serve.schemas import MemoryIn

STATES = ("stored", "duplicate", "rejected", "dead_lettered", "refused", "pending", "skipped")
SHOWN_FAILURES = 20


def import_file(
    file: Annotated[Path, typer.Argument(help="LoCoMo JSON, JSON lines, or a JSON list of chat messages.")],
    agent: Annotated[str | None, typer.Option("--agent", help="Whose memory; objects may name another.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Whom it is about; objects may name another.")] = None,
    trust: Annotated[
        Trust, typer.Option("--trust", help="The channel the file came through; objects may name a less trusted one.")
    ] = Trust.USER,
    infer: Annotated[bool | None, typer.Option("--infer/--no-infer", help="Extract facts and skills or not.")] = None,
    wait_s: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until all is stored.")] = 600.0,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import conversations. Run it again after an interruption: what is already there is not stored twice."""
    defaults = Defaults(agent_id=agent, user_id=user, infer=infer, trust=trust)
    tally = importing.Tally()
    with errors_explained():
        total, tally.counts["skipped"] = _checked(file, defaults)
    with connected(url, key, data_dir_) as api, _bar() as bar, _resumable():
        _run(api, _items(file, defaults), tally, bar, total=total, wait_s=wait_s)
    _report(file, tally, as_json=as_json)
    if tally.failures:
        raise typer.Exit(ExitCode.PARTIAL)


def _checked(file: Path, defaults: Defaults) -> tuple[int, int]:
    """Read the whole file before anything is sent; how many items to send, and how many have no content."""
    items = skipped = 0
    for found in read(file, defaults):
        if isinstance(found, Skipped):
            skipped += 1
        else:
            _validate(found)
            items += 1
    return items, skipped


def _validate(item: WriteItem) -> None:
    try:
        MemoryIn.model_validate(item.body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{item.place}: {where}: {first['msg']}; nothing was sent, correct it first") from exc


def _items(file: Path, defaults: Defaults) -> Iterator[WriteItem]:
    return (found for found in read(file, defaults) if isinstance(found, WriteItem))


def _run(
    api: Api, items: Iterator[WriteItem], tally: importing.Tally, bar: Progress, *, total: int, wait_s: float
) -> None:
    sending: TaskID = bar.add_task("sending", total=total)
    sent: list[importing.Sent] = []
    for batch in importing.batches(items):
        sent += importing.send(api, batch, tally)
        bar.advance(sending, len(batch))
    storing: TaskID = bar.add_task("storing", total=len(sent))
    importing.settle(api, sent, tally, timeout_s=wait_s, progress=lambda count: bar.advance(storing, count))


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=err, disable=not err.is_terminal)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        err.print("interrupted; run the same command again to continue")
        raise typer.Exit(ExitCode.PARTIAL) from None


def _report(file: Path, tally: importing.Tally, *, as_json: bool) -> None:
    counts: dict[str, Any] = {state: tally.counts[state] for state in STATES}
    if as_json:
        print_json({"file": str(file), **counts, "failures": [asdict(failure) for failure in tally.failures]})
        return
    said = [f"{count} {state.replace('_', '-')}" for state, count in counts.items() if count or state == "stored"]
    out.print(f"{file}: {', '.join(said)}", markup=False, highlight=False, soft_wrap=True)
    for failure in tally.failures[:SHOWN_FAILURES]:
        err.print(f"{failure.place}: {failure.state}: {failure.reason}", markup=False, highlight=False, soft_wrap=True)
    if len(tally.failures) > SHOWN_FAILURES:
        err.print(f"... and {len(tally.failures) - SHOWN_FAILURES} more; --json lists all of them")
