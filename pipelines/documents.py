"""The JSON objects of a file, with the lines they begin at.

A file is JSON lines when its first line is a whole object; otherwise it is one JSON value, and a list is read
element by element.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from memory.errors import InvalidInput

_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    file: Path
    line: int  # from 1
    path: str = ""  # inside the object that begins at that line

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" ({self.path})" if self.path else "")

    def inside(self, step: str) -> Place:
        joint = "." if self.path and not step.startswith("[") else ""
        return replace(self, path=f"{self.path}{joint}{step}")

    def error(self, what: str) -> InvalidInput:
        return InvalidInput(f"{self}: {what}")


def documents(file: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every object of the file. An error names the file, the line, and what to do."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for place, value in _values(file, lines):
                if not isinstance(value, dict):
                    raise place.error(f"expected an object, found {json.dumps(value)[:60]}")
                yield place, value
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"{file}: not UTF-8 ({exc.reason} at byte {exc.start}); convert it first") from exc
    except OSError as exc:
        raise InvalidInput(f"{file}: {exc.strerror or exc}; give the path of a readable file") from exc
    except RecursionError as exc:
        raise InvalidInput(f"{file}: nested too deeply to be a conversation") from exc


def _values(file: Path, lines: TextIO) -> Iterator[tuple[Place, Any]]:
    blank = 0
    for first in lines:
        if first.strip():
            break
        blank += 1
    else:
        return
    if _is_object(first):
        yield from _json_lines(file, chain([first], lines), blank + 1)
    else:
        yield from _json_value(file, "\n" * blank + first + lines.read())


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _json_lines(file: Path, lines: Iterator[str], start: int) -> Iterator[tuple[Place, Any]]:
    for number, line in enumerate(lines, start):
        if line.strip():
            place = Place(file, number)
            try:
                value = json.loads(line)
            except ValueError as exc:
                raise place.error(f"not JSON: {exc}; each line must be one object") from exc
            yield place, value


def _json_value(file: Path, text: str) -> Iterator[tuple[Place, Any]]:
    """The elements of a list, each with its line; anything else as it is."""
    decoder = json.JSONDecoder()
    start = _skip(text, 0)
    try:
        if text[start] != "[":
            yield Place(file, _line(text, start)), decoder.decode(text)
            return
        json.loads(text)  # the whole list is checked before its first element is used
    except json.JSONDecodeError as exc:
        raise Place(file, exc.lineno).error(f"not JSON: {exc.msg} at column {exc.colno}") from exc
    line, seen = 1, 0
    at = _skip(text, start + 1)
    while text[at] != "]":
        line, seen = line + text.count("\n", seen, at), at
        value, end = decoder.raw_decode(text, at)
        yield Place(file, line), value
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at
