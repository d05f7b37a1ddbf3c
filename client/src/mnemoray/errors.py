"""Everything that this client raises on purpose.

::

    MnemorayError
    ├── NotConfigured         no URL or key was given; the message says how to give one
    ├── ConnectionFailed      no answer came; ``sent`` says whether the server may have acted
    ├── NotSettled            a write was still pending when the time was up
    ├── UnexpectedAnswer      what answered is not this API, or a newer one
    └── ApiError              the API refused; ``status``, ``code``, ``detail`` and ``errors`` say why
        ├── InvalidInput      400, 413, 422: the request must change
        ├── Unauthorized      401, 403: the key is missing or unknown
        ├── NotFound          404: nothing with that identity is visible to this key
        ├── Conflict          409: it contradicts something accepted before
        ├── Backpressure      429: too many writes are waiting; see ``retry_after_s``
        ├── Unavailable       503: a server is away and nothing was changed; see ``retry_after_s``
        └── ServerError       any other 5xx
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class MnemorayError(Exception):
    """Base of all errors of this client."""


class NotConfigured(MnemorayError):
    """The client was built without something it needs."""


class ConnectionFailed(MnemorayError):
    """No answer came back."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent  # the request may have reached the server


class NotSettled(MnemorayError):
    """A write was still pending when the time was up; it is not lost and can be waited for again."""


class UnexpectedAnswer(MnemorayError):
    """The answer does not have the shape that this version of the client knows."""


class ApiError(MnemorayError):
    """The API answered with a problem."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code  # stable, for programs
        self.detail = detail  # for people
        self.errors = errors  # one entry per invalid field
        self.retry_after_s = retry_after_s


class InvalidInput(ApiError):
    """The request must change."""


class Unauthorized(ApiError):
    """The key is missing or unknown."""


class NotFound(ApiError):
    """Nothing with that identity is visible to this key."""


class Conflict(ApiError):
    """The request contradicts something accepted before."""


class Backpressure(ApiError):
    """Too many writes are waiting to be stored."""


class Unavailable(ApiError):
    """A server that this request needs is away; nothing was changed."""


class ServerError(ApiError):
    """The server failed; it may or may not have acted."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidInput,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    413: InvalidInput,
    422: InvalidInput,
    429: Backpressure,
    503: Unavailable,
}


def class_of(status: int) -> type[ApiError]:
    """The class of an HTTP status."""
    return _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
