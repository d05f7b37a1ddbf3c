"""Requests as values, and what their answers mean. Nothing here does I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx

from mnemoray._retry import retry_after_s
from mnemoray.errors import ApiError, ConnectionFailed, UnexpectedAnswer, class_of

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    repeatable: bool = True  # sending it twice has the effect, and the answer, of sending it once


def path(*segments: str | UUID) -> str:
    """A path under ``/v1``; ids may hold any character."""
    return "/v1/" + "/".join(_segment(str(segment)) for segment in segments)


def _segment(text: str) -> str:
    """One segment; "." and ".." would otherwise be taken as directions."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if not text.strip(".") else quoted


def connection_failed(error: httpx.TransportError, base_url: str) -> ConnectionFailed:
    reason = str(error) or type(error).__name__
    if isinstance(error, _NEVER_SENT):
        return ConnectionFailed(f"cannot reach {base_url} ({reason}); is Mnemoray running there?", sent=False)
    return ConnectionFailed(f"{base_url} did not answer ({reason}); the request may have been carried out", sent=True)


def answer(response: httpx.Response) -> Any:
    """The JSON of a success; problems are raised."""
    if not response.is_success:
        raise _api_error(response)
    try:
        return response.json()
    except ValueError as exc:
        raise UnexpectedAnswer(f"{response.url} did not answer in JSON; is the URL Mnemoray's?") from exc


def _api_error(response: httpx.Response) -> ApiError:
    problem = _problem(response)
    return class_of(response.status_code)(
        status=response.status_code,
        code=str(problem.get("code", "http_error")),
        detail=str(problem.get("detail", response.reason_phrase)),
        errors=problem.get("errors") or (),
        retry_after_s=retry_after_s(response.headers.get("Retry-After")),
    )


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    """The problem details; a proxy between may answer with anything."""
    try:
        found = json.loads(response.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
