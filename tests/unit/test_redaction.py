"""Redaction: each kind of secret by example, prose that must stay, and time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory.redaction import redact_secrets, redact_value

DATA = Path(os.environ.get("MNEMORAY_EVAL_DATA") or Path(__file__).parents[3] / "shared" / "data")
# Put together here, so that no scanner takes this file for a leak.
PEM = "-----BEGIN {0} KEY-----\nMIIEpAIBAAKCAQEA75abcdefgh0123456789\nq/+x==\n-----END {0} KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        (PEM.format("PRIVATE"), "private_key"),
        (PEM.format("RSA PRIVATE"), "private_key"),
        (PEM.format("EC PRIVATE").replace("\n", "\\n"), "private_key"),
        ("-----BEGIN PRIVATE" + " KEY-----\nMIIEpAIBAAKCAQEA75abcdefgh", "private_key"),
        ("AKIA" + "IOSFODNN7EXAMPLE", "aws_key_id"),
        ("ghp_" + "a1" * 18, "github_token"),
        ("github_pat_" + "a1" * 15, "github_token"),
        ("glpat-" + "a1" * 10, "gitlab_token"),
        ("xoxb-" + "123456789012-abcdef", "slack_token"),
        ("sk-" + "a1" * 24, "api_key"),
        ("sk-proj-" + "a1" * 24, "api_key"),
        ("sk_live_" + "a1" * 12, "api_key"),
        ("AIza" + "b" * 35, "google_key"),
        ("ya29." + "b" * 30, "google_key"),
        (JWT, "jwt"),
    ],
)
def test_a_secret_with_a_shape_is_replaced(secret: str, kind: str) -> None:
    found = redact_secrets(f"Take {secret} and go")
    assert found.text == f"Take [REDACTED:{kind}] and go"
    assert found.kinds == (kind,)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("postgres://ann:p@ss@db:5432/x", "postgres://[REDACTED:url_password]@db:5432/x"),
        ("redis://:pw@host/0", "redis://[REDACTED:url_password]@host/0"),
        ("curl -H 'Authorization: Bearer abcdef'", "curl -H 'Authorization: Bearer [REDACTED:bearer_token]'"),
        ("Authorization: Basic YW5uOnB3", "Authorization: Basic [REDACTED:bearer_token]"),
        ("it was bearer abcdefgh12345678", "it was bearer [REDACTED:bearer_token]"),
        (f"AWS secret is {AWS_SECRET} ok", "AWS secret is [REDACTED:aws_secret] ok"),
        ("password: xyz", "password: [REDACTED:assigned_secret]"),
        ("Password = hunter2 for Bob", "Password = [REDACTED:assigned_secret] for Bob"),
        ("DB_PASSWORD=hunter2", "DB_PASSWORD=[REDACTED:assigned_secret]"),
        ('{"password": "a b, c", "n": 1}', '{"password": "[REDACTED:assigned_secret]", "n": 1}'),
        ("?api_key=abc123&page=2", "?api_key=[REDACTED:assigned_secret]&page=2"),
        ("apiKey: 'abcdef'", "apiKey: '[REDACTED:assigned_secret]'"),
        ("client_secret := abcdef", "client_secret := [REDACTED:assigned_secret]"),
        ("token: abcd1234", "token: [REDACTED:assigned_secret]"),
        ("my password is hunter2", "my password is [REDACTED:assigned_secret]"),
    ],
)
def test_a_secret_beside_its_name_is_replaced(text: str, left: str) -> None:
    assert redact_secrets(text).text == left


@pytest.mark.parametrize(
    "text",
    [
        "my password is hard to remember",
        "I want to change my password, the reset link expired.",
        "The key is to be patient; the secret: she loves him.",
        "a bearer of internationalization responsibilities",
        "the scikit package sk-learn-based-classification-pipeline",
        "see https://example.com:8080/a@b and mail ann@example.com",
        "AWS build of commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "PWD=/home/ann",
        "next token: the",
        "eyJ is how a token starts",
        "",
    ],
)
def test_prose_stays(text: str) -> None:
    found = redact_secrets(text)
    assert (found.text, found.kinds) == (text, ())


def test_several_kinds_are_all_named() -> None:
    found = redact_secrets("password=abc and AKIA" + "IOSFODNN7EXAMPLE")
    assert found.kinds == ("aws_key_id", "assigned_secret")


def test_every_string_of_a_value_is_read() -> None:
    value = {"a": ["password: xyz", 1, None, {"b": "ok"}], "db_password": "hunter2", "token": "", "secret": ["x"]}
    assert redact_value(value) == {
        "a": ["password: [REDACTED:assigned_secret]", 1, None, {"b": "ok"}],
        "db_password": "[REDACTED:assigned_secret]",
        "token": "",
        "secret": ["x"],
    }
    assert redact_value({"password=xyz": 1, 2: "x"}) == {"password=[REDACTED:assigned_secret]": 1, 2: "x"}


_PIECES = st.sampled_from(
    ["password", ": ", "=", '"', "'", "hunter2", "Bearer ", "://", "a:b@", "token", " is ", "[REDACTED:jwt]",
     f" {JWT} ", "-----", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "aws", "x" * 40, "\n"]
)  # fmt: skip
_TEXT = st.one_of(st.text(max_size=300), st.lists(_PIECES | st.text(max_size=4), max_size=30).map("".join))


@example(text=f"AWS {JWT}: {'x' * 39}A")
@given(text=_TEXT)
@settings(max_examples=300, deadline=None)
def test_twice_is_once(text: str) -> None:
    once = redact_secrets(text)
    assert redact_secrets(once.text).text == once.text
    assert JWT not in once.text
    assert bool(once.kinds) == (once.text != text)


_LEAF = st.none() | st.integers() | st.text()
_JSON = st.recursive(_LEAF, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(value=_JSON)
@settings(max_examples=50, deadline=None)
def test_any_value_keeps_its_shape(value: Any) -> None:
    redacted = redact_value(value)
    assert type(redacted) is type(value)
    assert json.dumps(redacted).count("[") >= json.dumps(value).count("[")


@pytest.mark.parametrize(
    "piece",
    ["a ", "-----BEGIN PRIVATE KEY-----", "eyJ-", "eyJaaaaaaaa.", "aws ", "://a:", "password: ", "password is ", "sk-",
     "-", "authorization: bearer ", "bearer a", "token=", 'password="', "password ", "\n", "secret_key = '", "a1", "é"],
)  # fmt: skip
def test_long_texts_take_linear_time(piece: str) -> None:
    text = (piece * 64_000)[:64_000]
    started = time.process_time()
    redact_secrets(text)
    assert time.process_time() - started < 1.0


def test_real_conversations_hold_no_secrets() -> None:
    path = DATA / "locomo_dev.json"
    if not path.is_file():
        pytest.skip(f"evaluation data {path} is absent: set MNEMORAY_EVAL_DATA to the folder that holds it")
    samples = json.loads(path.read_text(encoding="utf-8"))
    sessions = [part for sample in samples for part in sample["conversation"].values() if isinstance(part, list)]
    assert [turn["text"] for turns in sessions for turn in turns if redact_secrets(turn["text"]).kinds] == []
