"""Whatever fits the OpenAPI document, and much that does not, never makes the server fail."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.acceptance.conftest import Running

pytestmark = pytest.mark.timeout(900)
EXAMPLES = 12  # per operation and mode


def test_no_request_makes_the_server_fail(instance: Running) -> None:
    schema = schemathesis.openapi.from_url(f"{instance.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 25
    calls = 0
    for operation in operations:
        for mode in GenerationMode:
            calls += _exercise(instance, operation, mode)
    assert calls > 10 * len(operations)


def _exercise(instance: Running, operation: Any, mode: GenerationMode) -> int:
    """How many requests were made; an operation that takes nothing has no wrong one."""
    headers = {"Authorization": f"Bearer {instance.key}"}

    calls = 0

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case: schemathesis.Case) -> None:
        nonlocal calls
        calls += 1
        case.call_and_validate(checks=[not_a_server_error], headers=headers, timeout=20)

    with suppress(Unsatisfiable):
        ask()
    return calls
