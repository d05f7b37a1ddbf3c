"""The command line."""

from __future__ import annotations

import typer

from cluster.commands import context, dead_letters, doctor, down, import_file, migrate, recall, remember, status, up

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A memory layer for fleets of AI agents.")
app.command()(up.up)
app.command()(down.down)
app.command()(status.status)
app.command()(doctor.doctor)
app.command()(migrate.migrate)
app.command("import")(import_file.import_file)
app.command()(remember.remember)
app.command()(recall.recall)
app.command()(context.context)
app.add_typer(dead_letters.app, name="dead-letters")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
