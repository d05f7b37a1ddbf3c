"""JSON to results, and inputs to JSON."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from uuid import UUID, uuid4

from mnemoray.errors import UnexpectedAnswer
from mnemoray.inputs import NewMemory

T = TypeVar("T")


def decode(kind: type[T], value: Any) -> T:
    """``value`` as a ``kind``; what the kind does not know is ignored."""
    try:
        return cast(T, _decode(kind, value))
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        name = getattr(kind, "__name__", str(kind))
        raise UnexpectedAnswer(
            f"the answer is no {name}: {exc!r}; is the URL right, and the client up to date?"
        ) from exc


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        return None if value is None else _decode(next(a for a in get_args(kind) if a is not types.NoneType), value)
    if origin is Sequence:
        return [_decode(get_args(kind)[0], item) for item in _a(list, value)]
    if origin is Mapping:
        return {key: _decode(get_args(kind)[1], item) for key, item in _a(dict, value).items()}
    if is_dataclass(kind):
        return _record(kind, _a(dict, value))
    return _scalar(kind, value)


def _scalar(kind: Any, value: Any) -> Any:
    if kind is UUID:
        return UUID(value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    if kind is float:
        return float(value)
    return value if kind is Any else _a(kind, value)


def _a(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    known = {f.name: _decode(hints[f.name], value[f.name]) for f in fields(kind) if f.name in value or _required(f)}
    return kind(**known)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def encode(value: Any) -> Any:
    """``value`` as JSON; fields that are ``None`` are left out, so that the server's defaults hold."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        return {key: encode(item) for key, item in found.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [encode(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def given(**values: Any) -> dict[str, Any]:
    """The values that are not ``None``, as JSON."""
    return {key: encode(value) for key, value in values.items() if value is not None}


def keyed(memory: NewMemory) -> NewMemory:
    """The memory with an idempotency key, a fresh one when the caller gave none."""
    if memory.idempotency_key is not None:
        return memory
    return replace(memory, idempotency_key=f"client:{uuid4().hex}")
