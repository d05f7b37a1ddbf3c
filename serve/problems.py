"""Errors become RFC 9457 problem details with a stable code."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from memory import errors
from serve.schemas import Problem

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1.0  # what a caller waits for a server that is away, before it asks again

_TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Body too large",
    422: "Invalid input",
    429: "Too many writes",
    503: "Unavailable",
}


class Unauthorized(errors.MnemorayError):
    """The request carries no known API key."""

    code = "unauthorized"


class Forbidden(errors.MnemorayError):
    """The request's API key is known, and may not do this."""

    code = "forbidden"


_STATUS: Mapping[type[errors.MnemorayError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    errors.InvalidInput: 422,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Backpressure: 429,
    errors.Unavailable: 503,
    errors.Fenced: 503,
}


def problem(status: int, code: str, detail: str, found: list[dict[str, Any]] | None = None) -> Problem:
    """A problem whose type is a stable URN made of its code."""
    title = _TITLES.get(status, "Error")
    return Problem(type=f"urn:mnemoray:{code}", title=title, status=status, code=code, detail=detail, errors=found)


def of_error(error: errors.MnemorayError) -> Problem:
    status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)
    return problem(status, error.code, str(error))


def response(body: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    content = body.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status_code=body.status, media_type=MEDIA_TYPE, headers=headers)


def _headers(error: errors.MnemorayError) -> dict[str, str]:
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, errors.Backpressure):
        return {"Retry-After": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, errors.Unavailable | errors.Fenced):
        return {"Retry-After": str(math.ceil(RETRY_AFTER_S))}
    return {}


async def _on_mnemoray_error(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, errors.MnemorayError)  # noqa: S101  registered for this class only
    return response(of_error(exc), _headers(exc))


async def _on_invalid(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)  # noqa: S101
    # The input itself is left out: it may be large, secret, or not even representable in JSON.
    found = [{"where": [str(part) for part in e["loc"]], "what": e["msg"]} for e in exc.errors()]
    detail = "; ".join(f"{'.'.join(e['where'])}: {e['what']}" for e in found[:5])
    return response(problem(422, "invalid_input", _representable(detail), _representable_all(found)))


def _representable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _representable_all(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"where": [_representable(part) for part in e["where"]], "what": _representable(e["what"])} for e in found[:50]
    ]


async def _on_http_error(_: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)  # noqa: S101
    codes = {404: "no_such_route", 405: "method_not_allowed", 400: "bad_request"}
    code = codes.get(exc.status_code, "http_error")
    return response(problem(exc.status_code, code, str(exc.detail)), dict(exc.headers or {}))


async def _on_bug(request: Request, exc: Exception) -> JSONResponse:
    logger.error("unhandled error on %s %s", request.method, request.url.path, exc_info=exc)
    return response(problem(500, "internal_error", "an internal error; the log has its traceback"))


def install(app: FastAPI) -> None:
    app.add_exception_handler(errors.MnemorayError, _on_mnemoray_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)
