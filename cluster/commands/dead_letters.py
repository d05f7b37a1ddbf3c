"""``mnemoray dead-letters``: writes that failed too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table
from rich.text import Text

from cluster.api import Api, KeyOption, UrlOption, connected, path
from cluster.console import DataDirOption, JsonOption, err, errors_explained, out, print_json
from cluster.exit_codes import ExitCode
from memory.errors import InvalidInput, NotFound

app = typer.Typer(no_args_is_help=True, help="Writes that failed too often: list, replay, drop.")

IdsArgument = Annotated[list[UUID] | None, typer.Argument(help="Ids of dead letters.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all", help="Every dead letter there is now.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, oldest first."""
    with connected(url, key, data_dir_) as api:
        found = [item for item, _ in zip(dead_letters(api), range(limit), strict=False)]
    if as_json:
        print_json(found)
    elif found:
        out.print(_table(found))
    else:
        err.print("no dead letters")


@app.command()
def replay(
    ids: IdsArgument = None,
    every: AllOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try dead letters again."""
    with connected(url, key, data_dir_) as api:
        done, missing = _each(api, ids, every, lambda id_: api.post(path("dead-letters", id_, "replay")))
    _report("replayed", done, missing, as_json=as_json)


@app.command()
def drop(
    ids: IdsArgument = None,
    every: AllOption = False,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters up: they count as rejected, and their content is deleted."""
    with connected(url, key, data_dir_) as api:
        done, missing = _each(api, ids, every, lambda id_: api.delete(path("dead-letters", id_)))
    _report("dropped", done, missing, as_json=as_json)


def dead_letters(api: Api) -> Iterator[dict[str, Any]]:
    """All of them, page by page."""
    cursor = None
    while True:
        page = api.get(path("dead-letters"), {"limit": 100} | ({"cursor": cursor} if cursor else {}))
        yield from page["items"]
        cursor = page.get("next_cursor")
        if not cursor:
            return


def _each(
    api: Api, ids: list[UUID] | None, every: bool, act: Callable[[str], Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What was done, and the ids that are no dead letters (any more)."""
    if bool(ids) == every:
        raise InvalidInput("name the ids of dead letters, or pass --all; 'mnemoray dead-letters list' shows them")
    done, missing = [], []
    for id_ in [str(item["id"]) for item in dead_letters(api)] if every else map(str, ids or ()):
        try:
            done.append(act(id_))
        except NotFound:
            missing.append(id_)
    return done, missing


def _report(verb: str, done: list[dict[str, Any]], missing: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json({verb: done, "not_found": missing})
    else:
        out.print(f"{verb} {len(done)}")
    if missing and not done:
        with errors_explained():
            raise NotFound(f"no such dead letter: {', '.join(missing)}")
    if missing:
        err.print(f"no such dead letter: {', '.join(missing)}", markup=False)
        raise typer.Exit(ExitCode.PARTIAL)


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table("id", "agent", "attempts", "failed at", "error", "content")
    table.columns[0].no_wrap = True
    for item in found:
        cells = (item["id"], item["agent_id"], str(item["attempts"]), item["failed_at"][:19])
        table.add_row(*(Text(cell) for cell in (*cells, item["error"], item["content"][:80])))
    return table
