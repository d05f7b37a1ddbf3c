"""``mnemoray recall``: ask an agent's memory."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from cluster.api import AgentOption, KeyOption, UrlOption, UserOption, connected, path
from cluster.console import DataDirOption, JsonOption, err, out, print_json

SessionOption = Annotated[str | None, typer.Option("--session", help="Add this session's working memory.")]


def recall(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    agent: AgentOption,
    user: UserOption,
    top_k: Annotated[int, typer.Option("-k", "--top-k", min=1, max=200, help="How many memories.")] = 10,
    session: SessionOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir_: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the memories that answer a question, best first."""
    body: dict[str, Any] = {"query": question, "user_id": user, "top_k": top_k}
    if session is not None:
        body["session_id"] = session
    with connected(url, key, data_dir_) as api:
        found = api.post(path("agents", agent, "memories", "search"), body)
    if as_json:
        print_json(found)
    elif found["hits"]:
        out.print(_table(found["hits"]))
    else:
        err.print("nothing remembered that answers this")


def _table(hits: list[dict[str, Any]]) -> Table:
    table = Table("score", "tier", "when", "who", "memory")
    for hit in hits:
        memory = hit["memory"]
        who = memory.get("speaker") or memory.get("user_id") or ""
        cells = (f"{hit['score']['total']:.3f}", memory["tier"], memory["created_at"][:10], who, memory["content"])
        table.add_row(*(Text(cell) for cell in cells))
    return table
