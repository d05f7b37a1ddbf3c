"""Conversation files as writes.

Three formats are told apart by what is in the file, never by its name:

- *LoCoMo*: a list of conversations with ``sample_id``, ``conversation.session_n`` and ``session_n_date_time``;
- *JSON lines*: one object a line, with the fields of a write or of a chat message (``role``, ``content``);
- *chat*: a list of chat messages, alone or under ``messages``.

Every write carries an idempotency key made of what it says and where it stands, so importing a file again, in
full or after an interruption, changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory.errors import InvalidInput
from memory.records import ID_MAX_LENGTH, Trust
from memory.trust import lower_of
from pipelines.documents import Place, documents

LOCOMO_AGENT = "locomo"
_KEY_PREFIX = "import:"
_SESSION = re.compile(r"session_(\d+)\Z")
_DATE_FORMAT = "%I:%M %p on %d %B, %Y"
_FIELDS = frozenset(
    {"content", "user_id", "session_id", "event_type", "role", "speaker", "outcome", "importance", "retention_tier"}
    | {"occurred_at", "metadata", "infer", "facts", "skill", "reward", "idempotency_key", "trust"}
)
_OTHER_NAMES = {"name": "speaker", "timestamp": "occurred_at", "created_at": "occurred_at"}
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteItem:
    """One write to send."""

    place: Place  # where it came from
    agent_id: str
    body: Mapping[str, Any]  # what POST memories takes


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """Something in the file that holds nothing to remember, such as a message without text."""

    place: Place
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Defaults:
    """What the caller says about a whole file."""

    agent_id: str | None = None
    user_id: str | None = None
    infer: bool | None = None  # None leaves it to the file
    trust: Trust = Trust.USER  # of the file; what is in it may claim less, never more


def read(file: Path, defaults: Defaults) -> Iterator[WriteItem | Skipped]:
    """The writes of a conversation file, in its order. The first error ends it: file, line, and what to do."""
    found = False
    for place, value in documents(file):
        found = True
        if isinstance(value.get("conversation"), dict):
            yield from _locomo(place, value, defaults)
        elif isinstance(value.get("messages"), list):
            yield from _messages(place, value, defaults)
        else:
            yield _message(place, value, defaults)
    if not found:
        raise InvalidInput(f"{file}: nothing to import; expected LoCoMo JSON, JSON lines, or a JSON list of messages")


# LoCoMo


def _locomo(place: Place, value: Mapping[str, Any], defaults: Defaults) -> Iterator[WriteItem | Skipped]:
    sample_id = value.get("sample_id")
    if not isinstance(sample_id, str) or not sample_id:
        raise place.error("this conversation has no sample_id; give it one, it becomes the user id")
    conversation = value["conversation"]
    for number in sorted(int(match[1]) for match in map(_SESSION.match, conversation) if match):
        at = place.inside(f"session_{number}")
        turns = conversation[f"session_{number}"]
        if not isinstance(turns, list):
            raise at.error("this session is no list of turns")
        session = _Session(sample_id, number, _session_start(at, conversation.get(f"session_{number}_date_time")))
        for index, turn in enumerate(turns):
            yield _turn(at.inside(f"[{index}]"), turn, index, session, defaults)


@dataclass(frozen=True, slots=True)
class _Session:
    sample_id: str
    number: int
    start: datetime

    @property
    def id(self) -> str:
        return f"{self.sample_id}-session-{self.number}"


def _session_start(place: Place, text: object) -> datetime:
    """LoCoMo does not say the zone of its dates; UTC is assumed."""
    try:
        return datetime.strptime(str(text), _DATE_FORMAT).replace(tzinfo=UTC)
    except ValueError as exc:
        raise place.error(f"session date {text!r} does not look like '1:56 pm on 8 May, 2023'; correct it") from exc


def _turn(place: Place, turn: object, index: int, session: _Session, defaults: Defaults) -> WriteItem | Skipped:
    if not isinstance(turn, dict) or not isinstance(turn.get("text"), str):
        raise place.error("this turn has no text; a turn is an object with speaker, dia_id and text")
    content = _with_caption(turn)
    if not content:
        return Skipped(place=place, reason="the turn is blank")
    dia_id = str(turn.get("dia_id") or f"D{session.number}:{index + 1}")
    body = {
        "content": content,
        "user_id": session.sample_id,
        "session_id": session.id,
        "role": "user",
        "speaker": turn.get("speaker"),
        "occurred_at": (session.start + timedelta(seconds=index)).isoformat(),
        "metadata": {"dia_id": dia_id, "sample_id": session.sample_id, "session": session.number},
        "infer": defaults.infer is not False,
        "trust": _trust(place, None, defaults),
        "idempotency_key": _key("locomo", session.sample_id, dia_id, content),
    }
    return WriteItem(place=place, agent_id=defaults.agent_id or LOCOMO_AGENT, body=_without_none(body))


def _with_caption(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return f"{turn['text']} [shares a photo: {caption}]".strip() if caption else str(turn["text"]).strip()


# Messages: JSON lines and chats


def _messages(place: Place, value: Mapping[str, Any], defaults: Defaults) -> Iterator[WriteItem | Skipped]:
    """A chat under ``messages``; the ids beside it hold for all of its messages."""
    shared = {name: value[name] for name in ("agent_id", "user_id", "session_id") if name in value}
    for index, message in enumerate(value["messages"]):
        at = place.inside(f"messages[{index}]")
        if not isinstance(message, dict):
            raise at.error("a message must be an object with role and content")
        yield _message(at, {**shared, **message}, defaults)


def _message(place: Place, value: Mapping[str, Any], defaults: Defaults) -> WriteItem | Skipped:
    if "content" not in value:
        raise place.error("no content; expected a message {role, content}, a write {content, user_id}, or LoCoMo")
    content = _text(place, value["content"])
    if not content.strip():
        return Skipped(place=place, reason="the message has no text")
    agent_id = value.get("agent_id") or defaults.agent_id
    if not isinstance(agent_id, str):
        raise place.error("no agent; pass --agent, or give each object an agent_id")
    body = {**_body(place, value), "content": content, "user_id": _user(place, value, defaults)}
    if defaults.infer is not None:
        body["infer"] = defaults.infer
    if (trust := _trust(place, body.pop("trust", None), defaults)) is not None:
        body["trust"] = trust
    if "idempotency_key" not in body:
        body["idempotency_key"] = _key("messages", agent_id, place.line, place.path, _canonical(body))
    return WriteItem(place=place, agent_id=agent_id, body=body)


def _body(place: Place, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a write under their names here; fields that a write does not have become metadata."""
    named = {_OTHER_NAMES.get(name, name): item for name, item in value.items() if item is not None}
    body = {name: item for name, item in named.items() if name in _FIELDS}
    others = {name: item for name, item in named.items() if name not in _FIELDS and name != "agent_id"}
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        raise place.error("metadata must be an object")
    body["metadata"] = {**others, **metadata}
    body.setdefault("session_id", place.file.stem[:ID_MAX_LENGTH])
    if "role" in body:
        body["role"] = _ROLES.get(str(body["role"]).lower(), str(body["role"]).lower())
    if "occurred_at" in body:
        body["occurred_at"] = _moment(place, body["occurred_at"])
    return body


def _user(place: Place, value: Mapping[str, Any], defaults: Defaults) -> str:
    user_id = value.get("user_id") or defaults.user_id
    if not isinstance(user_id, str):
        raise place.error("no user; pass --user, or give each object a user_id")
    return user_id


def _trust(place: Place, said: object, defaults: Defaults) -> Trust | None:
    """The less trusted of the file and what it says of itself; ``None`` for the usual one."""
    try:
        trust = defaults.trust if said is None else lower_of(defaults.trust, Trust(str(said)))
    except ValueError as exc:
        raise place.error(f"trust {said!r} is none of {', '.join(Trust)}") from exc
    return None if trust is Trust.USER else trust


def _text(place: Place, content: object) -> str:
    """The text of a message; chat APIs also send null, and lists of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    raise place.error("content must be a string, or a list of parts {type: text, text}")


def _moment(place: Place, value: object) -> str:
    """RFC 3339 with an offset; without one UTC is assumed. Numbers are seconds or milliseconds since 1970."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        else:
            moment = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError) as exc:
        raise place.error(f"time {value!r} cannot be read; write it like 2026-03-01T09:30:00+01:00") from exc
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


# Idempotency


def _key(*parts: object) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode())
    return _KEY_PREFIX + digest.hexdigest()


def is_import_key(key: str) -> bool:
    """Whether an idempotency key was made here, and not by the author of the file."""
    return key.startswith(_KEY_PREFIX)


def _canonical(body: Mapping[str, Any]) -> str:
    """The same text for the same write; what is to be made of it is no part of what it says."""
    return json.dumps({name: item for name, item in body.items() if name not in ("infer", "trust")}, sort_keys=True)


def _without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in body.items() if item is not None}
