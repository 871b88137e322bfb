"""A real HTTP server that holds every request against an OpenAPI description, and remembers what did not fit."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from jsonschema import Draft202012Validator

_SOON = 0.01
"""Seconds after which the server sees that it is to end."""


@dataclass(frozen=True)
class Request:
    """What came: the operation of the description, its arguments by name, and its body."""

    operation: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


Answers = Callable[[Request], tuple[int, Any]]
"""Status and JSON for a request."""


@dataclass
class DescribedServer:
    """The server: where it is, what it was asked, and what of that the description does not allow."""

    url: str
    requests: list[Request] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)

    @property
    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]


@contextmanager
def described_server(description: Mapping[str, Any], answers: Answers) -> Iterator[DescribedServer]:
    """Serve on loopback; at the end no request may have been against the description."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = self.rfile.read(length)
            status, answer = _answer(description, answers, server, (self.command, self.path, dict(self.headers), sent))
            content = b"" if status == 204 else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - its base class names them so

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base class
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = DescribedServer(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever, args=(_SOON,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
    assert server.misfits == []


def _answer(
    description: Mapping[str, Any],
    answers: Answers,
    server: DescribedServer,
    came: tuple[str, str, Mapping[str, str], bytes],
) -> tuple[int, Any]:
    method, target, headers, content = came
    parts = urlsplit(target)
    found = _operation(description, method, parts.path)
    if found is None:
        server.misfits.append(f"{method} {parts.path} is not described")
        return 404, {"detail": "Not Found"}
    described, arguments = found
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    lowered = {name.lower(): value for name, value in headers.items()}
    wrong, body = _misfits(description, described, arguments, query, lowered, content)
    request = Request(described["operationId"], arguments, query, lowered, body)
    server.requests.append(request)
    if wrong:
        server.misfits += [f"{request.operation}: {misfit}" for misfit in wrong]
        return 422, {"detail": "; ".join(wrong)}
    return answers(request)


def _operation(description: Mapping[str, Any], method: str, path: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    templates = sorted(description["paths"], key=lambda template: template.count("{"))  # what is literal goes first
    for template in templates:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
        operations = description["paths"][template]
        if (match := re.fullmatch(pattern, path)) and method.lower() in operations:
            return operations[method.lower()], {name: unquote(value) for name, value in match.groupdict().items()}
    return None


def _misfits(
    description: Mapping[str, Any],
    described: Mapping[str, Any],
    arguments: Mapping[str, str],
    query: Mapping[str, str],
    headers: Mapping[str, str],
    content: bytes,
) -> tuple[list[str], Any]:
    wrong: list[str] = []
    known = {"path": arguments, "query": query, "header": headers}
    parameters = [_resolved(description, parameter) for parameter in described.get("parameters", [])]
    for parameter in parameters:
        name = parameter["name"].lower() if parameter["in"] == "header" else parameter["name"]
        value = known[parameter["in"]].get(name)
        if value is not None:
            wrong += _text_misfits(description, parameter["schema"], value, parameter["name"])
        elif parameter.get("required"):
            wrong.append(f"{parameter['in']} parameter {parameter['name']} is missing")
    wrong += [f"query parameter {name} is unknown" for name in query if name not in {item["name"] for item in parameters}]
    media = _resolved(description, described.get("requestBody", {})).get("content", {})
    sent_as = headers.get("content-type", "").partition(";")[0]
    if not content:
        return wrong, None
    if sent_as not in media:
        return [*wrong, f"a body of type {sent_as or 'none'} is not described"], None
    schema = _resolved(description, media[sent_as]["schema"])
    if sent_as == "application/json":
        body = json.loads(content)
        return wrong + _misfits_of(description, schema, body, "body"), body
    form = {name: values[-1] for name, values in parse_qs(content.decode(), keep_blank_values=True).items()}
    fields = schema["properties"]
    wrong += [f"field {name} is missing" for name in schema.get("required", []) if name not in form]
    wrong += [f"field {name} is unknown" for name in form if name not in fields]
    for name in form.keys() & fields.keys():
        wrong += _text_misfits(description, fields[name], form[name], name)
    return wrong, form


def _text_misfits(description: Mapping[str, Any], schema: Mapping[str, Any], text: str, name: str) -> list[str]:
    """What is wrong with a value that is sent as text: numbers and booleans are written out, and a string may hold JSON."""
    schema = _resolved(description, schema)
    if "contentSchema" in schema:
        return _misfits_of(description, schema["contentSchema"], json.loads(text), name)
    value: Any = int(text) if schema.get("type") == "integer" and re.fullmatch(r"-?\d+", text) else text
    if schema.get("type") == "boolean" and text in ("true", "false"):
        value = text == "true"
    if schema.get("type") == "array" or any(item.get("type") == "array" for item in schema.get("anyOf", [])):
        value = [text]
    return _misfits_of(description, schema, value, name)


def _misfits_of(description: Mapping[str, Any], schema: Mapping[str, Any], value: Any, name: str) -> list[str]:
    validator = Draft202012Validator({**schema, "components": description.get("components", {})})
    return [f"{name}{error.json_path[1:]}: {error.message}" for error in validator.iter_errors(value)]


def _resolved(description: Mapping[str, Any], item: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in item:
        return item
    found: Any = description
    for part in item["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(description, found)
