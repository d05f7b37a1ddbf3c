"""Secrets leave a text before it is stored anywhere.

Credentials have shapes; what has none (a password in a sentence) cannot be told from prose and stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

# Every pattern is bounded, so that the time is linear in the text.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private_key",
        re.compile(
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.{0,16384}?-----END [A-Z ]{0,30}PRIVATE KEY-----", re.DOTALL
        ),
    ),
    ("url_password", re.compile(r"(?<=://)[^\s:/@]{1,128}:[^\s/@]{1,256}(?=@)")),
    ("aws_key_id", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("github_token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b")),
    ("slack_token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}")),
    ("api_key", re.compile(r"\b(?:sk|rk|pk)[-_](?:live_|test_|proj-|ant-)?[A-Za-z0-9_-]{20,250}")),
    ("google_key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b")),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_-]{8,2048}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,2048}")),
    ("bearer_token", re.compile(r"(?<=\bBearer )[A-Za-z0-9._~+/=-]{16,2048}", re.IGNORECASE)),
    (
        "assigned_secret",
        re.compile(
            r"(?i)(?<![A-Za-z0-9])(?:password|passwd|pwd|secret|secret[_-]?key|api[_-]?key|access[_-]?key|auth[_-]?token|"
            r"access[_-]?token|client[_-]?secret)[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?P<value>[^\s\"',;]{6,512})"
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A text without its secrets, and which kinds were found."""

    text: str
    kinds: tuple[str, ...] = ()


def redact_secrets(text: str) -> Redacted:
    """Replace each credential by ``[REDACTED:<kind>]``."""
    kinds = []
    for kind, pattern in _PATTERNS:
        text, found = pattern.subn(partial(_mask, kind), text)
        if found:
            kinds.append(kind)
    return Redacted(text=text, kinds=tuple(kinds))


def _mask(kind: str, match: re.Match[str]) -> str:
    """Mask the whole match, or only the value of an assignment; what is masked already stays as it is."""
    value = match.groupdict().get("value")
    if value is None:
        return f"[REDACTED:{kind}]"
    if value.startswith("[REDACTED:"):
        return match.group()
    return match.group()[: match.start("value") - match.start()] + f"[REDACTED:{kind}]"


def redact_value(value: Any) -> Any:
    """The same for every string inside a JSON value."""
    if isinstance(value, str):
        return redact_secrets(value).text
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        return {key: redact_value(item) for key, item in value.items()}
    return value
