"""Requests that nobody thought of: whatever an OpenAPI description allows, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

_CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


def throw_garbage(description: dict[str, Any], address: str, headers: Mapping[str, str], examples: int) -> int:
    """Ask every route of a server for what its description allows, and for what it does not.

    :param examples: how many requests of each kind a route gets.
    :return: how many requests were answered, each as the description says.
    :raises AssertionError: when an answer is not as described, with the request.
    """
    sent = 0
    schema = schemathesis.openapi.from_dict(description)
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                nonlocal sent
                answer = case.call(base_url=address, headers=dict(headers), timeout=120)
                case.validate_response(answer, checks=_CHECKS)
                sent += 1

            ask()
    return sent
