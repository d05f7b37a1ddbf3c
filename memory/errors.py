"""Errors that cross module boundaries.

::

    MnemorayError
    ├── InvalidInput          the caller must change the request
    ├── NotFound              no such memory, operation, session or skill (for this caller)
    ├── Conflict              the request contradicts something already accepted
    ├── Backpressure          accepted work is piling up; try again after ``retry_after_s``
    ├── Unavailable           a server this request needs does not answer; nothing was changed
    ├── Fenced                this shard no longer owns the partition it tried to write
    ├── InvalidOutput         a model answered something that cannot be used
    └── Misconfigured         settings, schema or installed files do not fit together

Every error has a stable ``code``; the HTTP layer maps classes to status codes and never parses text.
"""

from __future__ import annotations

from typing import ClassVar


class MnemorayError(Exception):
    """Base of all errors that Mnemoray raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(MnemorayError):
    """The request cannot be accepted as it is; the message says what to change."""

    code = "invalid_input"


class NotFound(MnemorayError):
    """Nothing with that identity is visible to this caller."""

    code = "not_found"


class Conflict(MnemorayError):
    """The request contradicts one that was accepted before."""

    code = "conflict"


class Backpressure(MnemorayError):
    """The ingest stream of a partition is full."""

    code = "backpressure"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(MnemorayError):
    """A backing server does not answer. Nothing was changed; the request can be repeated."""

    code = "unavailable"


class Fenced(MnemorayError):
    """Another shard owns the partition now, or owns it under a later epoch."""

    code = "fenced"


class InvalidOutput(MnemorayError):
    """A model's answer is empty, malformed, out of bounds or repeats itself."""

    code = "invalid_output"


class Misconfigured(MnemorayError):
    """Settings, database schema or installed files do not fit together."""

    code = "misconfigured"
