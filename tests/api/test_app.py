"""What OpenAPI says of the gateway is what it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.gateway import Served


@pytest.fixture
def schema(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/v3/openapi.json", headers={"authorization": ""})
    assert answer.status_code == 200
    described: dict[str, Any] = answer.json()
    return described


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_example_fits_its_schema(schema: dict[str, Any]) -> None:
    checked = 0
    for name, model in schema["components"]["schemas"].items():
        for example in model.get("examples", ()):
            jsonschema.validate(example, {**model, "components": schema["components"]})
            checked += 1
        assert "examples" in model or "enum" in model or name == "Configuration", f"{name} has no example"
    assert checked > 20


def test_every_example_of_a_body_is_understood(gateway: Served, client: httpx.Client, schema: dict[str, Any]) -> None:
    """As they stand, but for the table: it is one that is there."""
    for path, method, operation in _operations(schema):
        body = operation.get("requestBody")
        if body is None:
            continue
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in schema["components"]["schemas"][name]["examples"]:
            asked = {**example, **({"tables": ["lake.sales.daily"]} if "tables" in example else {})}
            answer = client.request(method, path.format(table="lake.sales.daily"), json=asked)
            assert answer.status_code in (200, 202, 404), (path, example, answer.text)
            if answer.status_code == 404:
                of_deployed = ("/suspend", "/resume", "/rollback", "/publish", "/abort")
                assert path.endswith(of_deployed), "of a table that is only declared"
    assert gateway.refresher.started


def test_every_route_says_how_to_log_in_and_how_it_fails(schema: dict[str, Any]) -> None:
    assert schema["security"] == [{"bearer": []}]
    for path, _, operation in _operations(schema):
        assert {"401", "403", "422", "500", "503"} <= operation["responses"].keys(), path
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (path, status)


def test_whoever_names_a_table_is_told_that_it_may_not_be_there(schema: dict[str, Any]) -> None:
    """In the path, or in the body of a wish for several."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert ("404" in operation["responses"]) == ("{" in path or method == "post"), (method, path)


def test_nobody_is_told_anything_without_a_login(client: httpx.Client, schema: dict[str, Any]) -> None:
    for path, method, _ in _operations(schema):
        answer = client.request(method, path.format(table="lake.sales.daily", job_id="0"), headers={"authorization": ""})
        assert (answer.status_code, "Bearer" in answer.headers["www-authenticate"]) == (401, True)
