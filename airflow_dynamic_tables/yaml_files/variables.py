"""Substitution of environment variables, ``${NAME}``, in the scalars of a YAML file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.redaction import is_secret_name, without_secrets
from airflow_dynamic_tables.yaml_files.documents import Document, Location
from airflow_dynamic_tables.yaml_files.parsing import scalar_of

_VARIABLE = re.compile(r"(?P<escape>\$?)\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^{}]*)?(?P<end>\}|:-)")
"""``${NAME}`` and ``${NAME:-default}``; a second dollar sign escapes it. Others, such as ``${spark.x}``, are not variables."""

_SECRET_NAME = re.compile(r"(?:^|_)(?:pass|pw|pat|key|conn|dsn|creds?)$|^AIRFLOW_(?:CONN_|_)", re.IGNORECASE)
"""Further patterns of variables that hold secrets; as names of settings or columns these words have other meanings."""

SETTING = "DYNAMIC_TABLES_VARIABLES"
"""The environment variable that lists the variables that definitions may read."""

_MARKS = ("${", "{{", "\\x", "\\u", "\\U")
"""Markers of substitutions, also when written as escapes; a file without them has none."""


def mentions_variable(text: str) -> bool:
    """Return whether a text contains anything in the form of a variable."""
    return _VARIABLE.search(text) is not None


def escaped(text: str) -> str:
    """Escape a text, so that substitution returns it unchanged."""
    return _VARIABLE.sub(lambda mention: f"${mention[0]}", text)


def may_mention(document: Document) -> bool:
    """Return whether a file may contain substitutions, so that its scalars have to be examined."""
    return any(mark in document.text for mark in _MARKS)


def scalars(data: object, location: Location) -> Iterator[tuple[Location, str]]:
    """All texts below a location, with their locations."""
    if isinstance(data, str):
        yield location, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from scalars(value, (*location, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from scalars(value, (*location, number))


@dataclass(slots=True)
class Variables:
    """The variables of an environment; ``read`` has those that were looked up, with ``None`` for unset ones.

    Only variables that match one of the patterns ``allowed`` are looked up.
    """

    environ: Mapping[str, str]
    allowed: Sequence[str]
    read: dict[str, str | None] = field(default_factory=dict)

    def substituted(self, document: Document, location: Location, data: Any) -> tuple[Any, list[Mistake]]:
        """Substitute variables in data, as if the values were written in the file; returns data and mistakes."""
        if isinstance(data, Mapping):
            mistakes = [
                document.key_mistake((*location, key), f"{key!r} is a key, and only values take variables of the environment")
                for key in data
                if mentions_variable(key)
            ]
            pairs = {key: self.substituted(document, (*location, key), value) for key, value in data.items()}
            return {key: pair[0] for key, pair in pairs.items()}, mistakes + [m for pair in pairs.values() for m in pair[1]]
        if isinstance(data, list):
            items = [self.substituted(document, (*location, number), value) for number, value in enumerate(data)]
            return [item[0] for item in items], [mistake for item in items for mistake in item[1]]
        if not isinstance(data, str) or not mentions_variable(data):
            return data, []
        problems = [(match, problem) for match in _VARIABLE.finditer(data) if (problem := self._problem(match, location))]
        if problems:
            return data, [document.text_mistake(location, match.start(), problem) for match, problem in problems]
        return scalar_of(_VARIABLE.sub(self._value, data), is_plain=document.is_plain(location)), []

    def _problem(self, match: re.Match[str], location: Location) -> str | None:
        name = match["name"]
        if match["escape"]:
            return None
        if match["end"] != "}":
            return f"a default such as ${{{name}:-text}} ends with '}}' and holds no braces"
        if not any(fnmatchcase(name, pattern) for pattern in self.allowed):
            allowed = ", ".join(self.allowed) or "none"
            return (
                f"definitions may not read the environment variable {name}; to allow it, add its name or a pattern to {SETTING} "
                f"wherever definitions are read (DAG processor, workers, command line); allowed now: {allowed}"
            )
        value = self.read[name] = self.environ.get(name)
        if value is None and match["default"] is None:
            return (
                f"there is no environment variable {name}; set it wherever definitions are read (DAG processor, workers, command "
                f"line), give a default as ${{{name}:-text}}, or write $${{{name}}} for the text itself"
            )
        if value is not None and not value.isprintable():
            return f"the environment variable {name} holds a character that is not printable"
        key = next((step for step in reversed(location) if isinstance(step, str)), "")
        if is_secret_name(key):
            return None
        if is_secret_name(name) or _SECRET_NAME.search(name):
            return f"{key!r} is shown to everybody, and {name} sounds like a secret; see docs/security.md"
        if value is not None and without_secrets(value) != value:
            return f"{key!r} is shown to everybody, and the value of {name} holds a password; see docs/security.md"
        return None

    def _value(self, match: re.Match[str]) -> str:
        if match["escape"]:
            return match[0][1:]
        return self.environ.get(match["name"]) or (match["default"] or "").removeprefix(":-")
