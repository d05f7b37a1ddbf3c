"""Exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # the request was understood and could not be carried out
    USAGE = 2  # the command line is wrong
    UNAVAILABLE = 3  # a server does not answer
    NOT_FOUND = 4
    PARTIAL = 5  # some of many failed
