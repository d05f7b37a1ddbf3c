"""Secrets leave a text before it is stored anywhere.

Credentials have shapes, or stand right after their name; what has neither cannot be told from prose and stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

_KEY_LABEL = r"[A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_LOGIN_WORD = r"(?:password|passwd|passphrase|passcode|pwd(?!\s{0,4}[:=]\s{0,4}/))"  # PWD=/home is a directory
_KEY_NAME = (
    r"(?:(?:api|access|secret|private|signing|encryption|account)[_ -]?key|client[_ -]?secret|"
    r"(?:auth|access|refresh|api|bot|session)[_ -]?token)"
)
_PROSE_WORD = r"(?:secret|token|credentials?)"  # words of prose as well, so their value must look like a secret
_IS = r"[\"']?\s{0,4}(?::=|=>|[:=])\s{0,4}"
_QUOTED = r"(?<=\")[^\"\n]{1,512}(?=\")|(?<=')[^'\n]{1,512}(?=')"

# Every repetition is bounded or possessive, so that the time is linear in the text.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private_key",
        re.compile(
            rf"-----BEGIN {_KEY_LABEL}(?:(?:[^-]|-(?!----))*+-----END {_KEY_LABEL}"
            # cut off before its end: only what looks like key material
            r"|(?:(?:\s|\\n){0,4}[A-Za-z0-9+/=]{20,})*+)"
        ),
    ),
    ("url_password", re.compile(r"(?<=://)[^\s:/@]{0,128}:[^\s/]{1,256}(?=@)")),
    ("aws_key_id", re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b")),
    (
        "aws_secret",
        re.compile(r"(?i:aws)[^\n]{0,40}?(?<![\w/+])(?![0-9a-f]{40})(?P<value>[A-Za-z0-9/+]{40})(?![\w/+=])"),
    ),
    ("github_token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})\b")),
    ("gitlab_token", re.compile(r"\bglpat-[A-Za-z0-9_-]{20,100}")),
    ("slack_token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}|(?<=hooks\.slack\.com/services/)[\w/]{20,100}")),
    ("api_key", re.compile(r"(?<![\w-])(?:sk|rk|pk|whsec|hf|npm)[-_](?=[\w-]{0,250}\d)[A-Za-z0-9_-]{20,250}")),
    ("google_key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}(?![\w-])|\bya29\.[\w-]{20,1024}|\bGOCSPX-[\w-]{20,64}")),
    # A header inside a word is shorter: every "eyJ" of a long run of them would be scanned to the bound.
    ("jwt", re.compile(r"(?:(?<![\w-])eyJ[\w-]{8,4096}|eyJ[\w-]{8,512})\.eyJ[\w-]{8,8192}\.[\w-]{0,4096}")),
    (
        "bearer_token",
        re.compile(
            rf"(?i)\bauthorization{_IS}[\"']?(?:bearer|basic|token)\s{{1,4}}(?P<value>[^\s\"',;]{{4,4096}})"
            r"|\bbearer\s{1,4}(?=[\w.~+/=-]{0,2048}\d)(?P<bare>[\w.~+/=-]{16,4096})"
        ),
    ),
    (
        "assigned_secret",
        re.compile(
            rf"(?i){_LOGIN_WORD}{_IS}[\"']?(?P<password>{_QUOTED}|[^\s\"'&}}]{{3,512}})"
            rf"|{_KEY_NAME}{_IS}[\"']?(?P<key>{_QUOTED}|[^\s\"',;&}}]{{6,2048}})"
            rf"|{_PROSE_WORD}{_IS}[\"']?(?P<secret>(?=[^\s\"',;&}}]{{0,512}}\d)[^\s\"',;&}}]{{8,2048}})"
            # "my password is hunter2": a word with a digit in it
            rf"|{_LOGIN_WORD} is [\"']?(?P<said>(?=[^\s\d]{{0,128}}\d)(?=[^\sa-z]{{0,128}}[a-z])[^\s\"',]{{6,256}})"
        ),
    ),
)
_SECRET_KEY = re.compile(rf"(?i)(?:{_LOGIN_WORD}|{_KEY_NAME}|{_PROSE_WORD})$")


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """A text without its secrets, and which kinds were found."""

    text: str
    kinds: tuple[str, ...] = ()


def redact_secrets(text: str) -> Redacted:
    """Replace each credential by ``[REDACTED:<kind>]``, until none is left.

    A mask is shorter than most secrets, so one that stood too far from its name may be near enough after a pass.
    """
    kinds: dict[str, None] = {}
    while True:
        before = text
        for kind, pattern in _PATTERNS:
            masked = pattern.sub(partial(_mask, kind), text)
            if masked != text:
                kinds[kind] = None
            text = masked
        if text == before:
            return Redacted(text=text, kinds=tuple(kinds))


def _mask(kind: str, match: re.Match[str]) -> str:
    """Mask the whole match, or only its named value; what is masked already stays as it is."""
    start, end = match.span(match.lastgroup or 0)
    if match.string.startswith("[REDACTED:", start):
        return match.group()
    before, after = match.string[match.start() : start], match.string[end : match.end()]
    return f"{before}[REDACTED:{kind}]{after}"


def redact_value(value: Any) -> Any:
    """The same for every string inside a JSON value, and for what is kept under a secret's name."""
    if isinstance(value, str):
        return redact_secrets(value).text
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        return {_redact_key(key): _redact_member(key, item) for key, item in value.items()}
    return value


def _redact_key(key: Any) -> Any:
    return redact_secrets(key).text if isinstance(key, str) else key


def _redact_member(key: Any, item: Any) -> Any:
    """``{"password": "hunter2"}``: the name that gives a value away is the member's."""
    is_named = isinstance(key, str) and isinstance(item, str) and _SECRET_KEY.search(key[-64:])
    if is_named and item and not item.startswith("[REDACTED:"):
        return "[REDACTED:assigned_secret]"
    return redact_value(item)
