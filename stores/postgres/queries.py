"""Named queries: ``sql/*.sql`` holds blocks that begin with ``-- name: <query>``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import LiteralString, cast

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(file: str) -> Mapping[str, LiteralString]:
    """The queries of ``sql/<file>.sql`` by name. Raises ``AssertionError`` when two have the same."""
    text = resources.files("stores.postgres").joinpath("sql", f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    if len(set(parts[::2])) < len(parts[::2]):
        raise AssertionError(f"{file}.sql has two queries of one name")
    # The text ships with the code, so it is as literal as a string in this file.
    return {name: cast(LiteralString, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)}
