"""``mnemoray context``: what a model would be given."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from cluster.api import AgentOption, KeyOption, UrlOption, UserOption, connected, path
from cluster.commands.recall import SessionOption
from cluster.console import DataDirOption, JsonOption, err, out, print_json


def context(
    question: Annotated[str, typer.Argument(help="What the user asked.")],
    agent: AgentOption,
    user: UserOption,
    session: SessionOption = None,
    window: Annotated[int | None, typer.Option(min=1, help="The model's context window in tokens.")] = None,
    system_prompt: Annotated[str, typer.Option(help="The system prompt to begin with.")] = "",
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Assemble a context: ready-to-send messages on stdout, its token usage on stderr."""
    asked = {"query": question, "user_id": user, "session_id": session, "window": window}
    body = {name: value for name, value in asked.items() if value is not None}
    with connected(url, key, data_dir_) as api:
        found = api.post(path("agents", agent, "context"), {**body, "system_prompt": system_prompt})
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    for message in found["messages"]:
        out.print(f"[{message['role']}]", style="bold", markup=False)
        out.print(message["content"], markup=False, highlight=False)
    err.print(_usage(found))


def _usage(found: dict[str, Any]) -> Table:
    used, available = found["tokens_used"], found["tokens_available"]
    table = Table("tier", "allocated", "used", "dropped", caption=f"{used} of {available} tokens used")
    for tier, usage in found["tiers"].items():
        table.add_row(tier, str(usage["allocated"]), str(usage["used"]), str(usage["dropped"]))
    return table
