"""Errors as problem details."""

from __future__ import annotations

from memory import errors
from serve.problems import of_error
from stores.models.endpoint import Busy


def test_a_kind_of_an_error_has_the_status_of_its_kind() -> None:
    assert of_error(errors.Unavailable("x")).status == 503
    assert of_error(Busy("x", retry_after_s=1.0)).status == 503
    assert of_error(errors.Misconfigured("x")).status == 500
