"""``mnemoray migrate``: bring a database to this version."""

from __future__ import annotations

import asyncio

from cluster.console import JsonOption, errors_explained, out, print_json
from configs.settings import Settings
from memory.errors import Misconfigured
from migrations.runner import FixedSettings
from migrations.runner import migrate as apply


def migrate(as_json: JsonOption = False) -> None:
    """Apply missing migrations to the database of MNEMORAY_POSTGRES_DSN; 'up' does it for its own server."""
    with errors_explained():
        settings = Settings()
        if settings.postgres_dsn is None:
            raise Misconfigured("set MNEMORAY_POSTGRES_DSN; 'mnemoray up' migrates the embedded database by itself")
        fixed = FixedSettings(partitions=settings.partitions, dimension=settings.embedding.dimension)
        applied = asyncio.run(apply(settings.postgres_dsn, fixed))
    if as_json:
        print_json({"applied": applied})
    else:
        out.print("applied: " + ", ".join(applied) if applied else "nothing to apply", markup=False)
