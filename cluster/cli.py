"""The command line."""

from __future__ import annotations

import typer

from cluster.commands import down, migrate, status, up

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A memory layer for fleets of AI agents.")
app.command()(up.up)
app.command()(down.down)
app.command()(status.status)
app.command()(migrate.migrate)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
