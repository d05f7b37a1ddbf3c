"""Conversation files become writes; whatever is wrong is said with its file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory.errors import InvalidInput
from memory.records import Trust
from pipelines.conversations import Defaults, Skipped, WriteItem, read
from serve.schemas import MemoryIn

ADA = Defaults(agent_id="concierge", user_id="ada")
LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_10_date_time": "12:09 am on 13 September, 2023",
            "session_10": [{"speaker": "Bob", "dia_id": "D10:1", "text": "Later."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Hi!"},
                {"speaker": "Bob", "dia_id": "D2:2", "text": "Look.", "blip_caption": "a photo of a dog"},
                {"speaker": "Ann", "dia_id": "D2:3", "text": "  "},
            ],
            "session_3_date_time": "2:00 pm on 9 May, 2023",
        },
        "qa": [],
    }
]


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def _write(text: object, name: str = "talk.json") -> Path:
        file = tmp_path / name
        file.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return file

    return _write


def items(file: Path, defaults: Defaults = ADA) -> list[WriteItem]:
    found = [item for item in read(file, defaults) if isinstance(item, WriteItem)]
    for item in found:
        MemoryIn.model_validate(item.body)
    return found


def test_locomo_sessions_in_numeric_order_with_their_turns(write: Any) -> None:
    first, photo, late = items(write(LOCOMO), Defaults())
    assert [item.body["session_id"] for item in (first, photo, late)] == [
        "conv-1-session-2",
        "conv-1-session-2",
        "conv-1-session-10",
    ]
    assert first.agent_id == "locomo"
    assert (first.body["user_id"], first.body["speaker"], first.body["role"]) == ("conv-1", "Ann", "user")
    assert first.body["occurred_at"] == "2023-05-08T13:56:00+00:00"
    assert first.body["metadata"] == {"dia_id": "D2:1", "sample_id": "conv-1", "session": 2}
    assert photo.body["content"] == "Look. [shares a photo: a photo of a dog]"
    assert photo.body["occurred_at"] == "2023-05-08T13:56:01+00:00"
    assert late.body["occurred_at"] == "2023-09-13T00:09:00+00:00"


def test_a_blank_turn_is_skipped_not_failed(write: Any) -> None:
    (skipped,) = [item for item in read(write(LOCOMO), ADA) if isinstance(item, Skipped)]
    assert str(skipped.place).endswith("talk.json:1 (session_2[2])")


def test_one_conversation_need_not_be_in_a_list(write: Any) -> None:
    assert len(items(write(LOCOMO[0]))) == 3
    assert len(items(write(json.dumps(LOCOMO[0], indent=1)))) == 3


def test_agent_and_infer_are_the_callers(write: Any) -> None:
    item = items(write(LOCOMO), Defaults(agent_id="b", infer=False))[0]
    assert (item.agent_id, item.body["infer"]) == ("b", False)


def test_keys_depend_on_what_is_said_and_not_on_the_file(write: Any) -> None:
    keys = [item.body["idempotency_key"] for item in items(write(LOCOMO))]
    again = [item.body["idempotency_key"] for item in items(write(json.dumps(LOCOMO, indent=2), "other.json"))]
    assert keys == again
    assert len(set(keys)) == 3
    assert all(key.startswith("import:") for key in keys)


def test_json_lines_of_writes(write: Any) -> None:
    lines = '{"content": "a", "user_id": "u", "agent_id": "x", "importance": 0.5}\n\n{"content": "b", "mood": "glad"}\n'
    first, second = items(write(lines, "log.jsonl"))
    assert (first.agent_id, first.body["user_id"], first.body["importance"]) == ("x", "u", 0.5)
    assert (second.agent_id, second.body["user_id"], second.place.line) == ("concierge", "ada", 3)
    assert second.body["metadata"] == {"mood": "glad"}
    assert second.body["session_id"] == "log"


def test_an_own_idempotency_key_is_kept(write: Any) -> None:
    assert items(write('{"content": "a", "idempotency_key": "mine"}'))[0].body["idempotency_key"] == "mine"


def test_the_same_line_twice_is_two_memories_and_stable(write: Any) -> None:
    file = write('{"role": "user", "content": "ok"}\n{"role": "user", "content": "ok"}\n')
    first, second = (item.body["idempotency_key"] for item in items(file))
    assert first != second
    changed = Defaults(agent_id="concierge", user_id="ada", infer=False)
    assert [item.body["idempotency_key"] for item in items(file, changed)] == [first, second]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2026-03-01T09:30:00+01:00", "2026-03-01T09:30:00+01:00"),
        ("2026-03-01T09:30:00", "2026-03-01T09:30:00+00:00"),
        (1767225600, "2026-01-01T00:00:00+00:00"),
        (1767225600000, "2026-01-01T00:00:00+00:00"),
    ],
)
def test_chat_messages(write: Any, timestamp: object, expected: str) -> None:
    chat = [
        {"role": "human", "content": "Hello", "name": "Ada", "timestamp": timestamp},
        {"role": "AI", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    hello, answer = items(write(json.dumps(chat, indent=1)))
    assert (hello.body["role"], hello.body["speaker"], hello.body["occurred_at"]) == ("user", "Ada", expected)
    assert (answer.body["role"], answer.body["content"], answer.place.line) == ("assistant", "Hi", 8)


def test_messages_in_an_object(write: Any) -> None:
    chat = {"user_id": "u", "session_id": "s", "messages": [{"role": "user", "content": "a"}]}
    (item,) = items(write(chat), Defaults(agent_id="x"))
    assert (item.body["user_id"], item.body["session_id"]) == ("u", "s")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing to import"),
        (" \n\n", "nothing to import"),
        ("[]", "nothing to import"),
        ("[1]", "expected an object"),
        ("[{}", "talk.json:1: not JSON"),
        ('[\n{"content": "a"},\n{"content": }\n]', "talk.json:3: not JSON"),
        ('{"content": "a"}\n{oops\n', "talk.json:2: not JSON"),
        ('{"content": "a"}\n[]\n', "talk.json:2: expected an object"),
        ('\n{"text": "a"}\n', "talk.json:2: no content"),
        ('{"content": 3}', "content must be a string"),
        ('{"content": "a", "metadata": 3}', "metadata must be an object"),
        ('{"content": "a", "timestamp": "yesterday"}', "time 'yesterday' cannot be read"),
        ('{"messages": [3]}', r"talk.json:1 \(messages\[0\]\): a message must be an object"),
        ('[{"conversation": {}}]', "no sample_id"),
        ('[{"sample_id": "c", "conversation": {"session_1": [{}]}}]', "session date None"),
        ('[{"sample_id": "c", "conversation": {"session_1": 3}}]', "no list of turns"),
        (
            json.dumps(LOCOMO).replace('"text": "Later."', '"said": "Later."'),
            r"session_10\[0\]\): this turn has no text",
        ),
        ("[" * 100_000, "talk.json"),
    ],
)
def test_errors_say_where_and_what(write: Any, text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        list(read(write(text), ADA))


def test_missing_ids_name_the_option(write: Any) -> None:
    file = write('{"content": "a"}')
    with pytest.raises(InvalidInput, match="pass --agent"):
        list(read(file, Defaults(user_id="ada")))
    with pytest.raises(InvalidInput, match="pass --user"):
        list(read(file, Defaults(agent_id="a")))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        list(read(tmp_path / "none.json", ADA))
    (tmp_path / "latin.json").write_bytes('{"content": "é"}'.encode("latin-1"))
    with pytest.raises(InvalidInput, match="not UTF-8"):
        list(read(tmp_path / "latin.json", ADA))


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "bom.json").write_text('{"content": "a"}', encoding="utf-8-sig")
    assert len(items(tmp_path / "bom.json")) == 1


@pytest.mark.parametrize(
    ("of_the_file", "said", "sent"),
    [
        ("user", None, None),
        ("user", "system", None),
        ("user", "external", "external"),
        ("tool", "user", "tool"),
        ("tool", "external", "external"),
        ("system", None, "system"),
        ("system", "tool", "tool"),
    ],
)
def test_a_file_may_claim_less_trust_than_its_channel_has_and_never_more(
    write: Any, of_the_file: str, said: str | None, sent: str | None
) -> None:
    line = {"content": "hi"} | ({"trust": said} if said else {})
    defaults = Defaults(agent_id="a", user_id="u", trust=Trust(of_the_file))
    (item,) = items(write([line]), defaults)
    assert item.body.get("trust") == sent


def test_a_locomo_file_has_the_trust_of_its_channel(write: Any) -> None:
    assert {item.body.get("trust") for item in items(write(LOCOMO), Defaults(trust=Trust.EXTERNAL))} == {"external"}


def test_trust_is_no_part_of_what_a_write_says(write: Any) -> None:
    file = write([{"content": "hi"}])
    keys = {items(file, Defaults(agent_id="a", user_id="u", trust=trust))[0].body["idempotency_key"] for trust in Trust}
    assert len(keys) == 1


def test_a_trust_that_does_not_exist_is_named_with_its_place(write: Any) -> None:
    with pytest.raises(InvalidInput, match=r"talk.json:1.*'root' is none of system, user, tool, external"):
        items(write([{"content": "hi", "trust": "root"}]))
