"""``mnemoray remember``: store one memory."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cluster.api import AgentOption, Api, KeyOption, UrlOption, UserOption, connected, path
from cluster.console import DataDirOption, JsonOption, out, print_json
from cluster.exit_codes import ExitCode
from memory.records import Trust


def remember(
    text: Annotated[str, typer.Argument(help="What to remember.")],
    agent: AgentOption,
    user: UserOption,
    session: Annotated[str, typer.Option("--session", help="The conversation it belongs to.")] = "default",
    trust: Annotated[Trust, typer.Option(help="The channel it came through.")] = Trust.USER,
    infer: Annotated[bool, typer.Option(help="Extract facts and skills from it.")] = True,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remember a text, and wait until it is stored."""
    with connected(url, key, data_dir_) as api:
        accepted = _write(api, agent, content=text, user_id=user, session_id=session, trust=trust, infer=infer)
    if as_json:
        print_json(accepted)
    else:
        out.print(_said(accepted), markup=False)
    if accepted["state"] in ("rejected", "dead_lettered"):
        raise typer.Exit(ExitCode.FAILED)


def _write(api: Api, agent: str, **body: Any) -> dict[str, Any]:
    accepted: dict[str, Any] = api.post(path("agents", agent, "memories"), body | {"wait": "persistent"})
    return accepted


def _said(accepted: dict[str, Any]) -> str:
    reason = f": {accepted['reason']}" if accepted.get("reason") else ""
    return f"{accepted['state']}  {accepted['id']}{reason}"
