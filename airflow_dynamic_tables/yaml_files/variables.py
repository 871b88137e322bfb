"""``${NAME}`` in the scalars of a YAML file: what the environment says in its place."""

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
"""``${NAME}`` and ``${NAME:-default}``; with one more dollar sign the text itself. Nothing else: no ``${spark.x}``."""

_SECRET_NAME = re.compile(r"(?:^|_)(?:pass|pw|pat|key|conn|dsn|creds?)$|^AIRFLOW_(?:CONN_|_)", re.IGNORECASE)
"""Further names of variables that hold secrets; as names of settings or columns these words mean other things."""

SETTING = "DYNAMIC_TABLES_VARIABLES"
"""The variable of the environment that names those which definitions may read."""

_MARKS = ("${", "{{", "\\x", "\\u", "\\U")
"""What a file holds in which anything may stand for something else, also when it is written as an escape."""


def mentions_variable(text: str) -> bool:
    """Whether a text has anything in the form of a variable."""
    return _VARIABLE.search(text) is not None


def escaped(text: str) -> str:
    """A text that means this one, where variables of the environment are looked for."""
    return _VARIABLE.sub(lambda mention: f"${mention[0]}", text)


def may_mention(document: Document) -> bool:
    """Whether it is worth to look at each scalar of a file."""
    return any(mark in document.text for mark in _MARKS)


def scalars(data: object, location: Location) -> Iterator[tuple[Location, str]]:
    """All texts below a location, and where they stand."""
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
    """The variables of an environment; ``read`` has those that were asked for, with ``None`` for what is not set.

    Only those that one of the patterns ``allowed`` names are looked up.
    """

    environ: Mapping[str, str]
    allowed: Sequence[str]
    read: dict[str, str | None] = field(default_factory=dict)

    def substituted(self, document: Document, location: Location, data: Any) -> tuple[Any, list[Mistake]]:
        """Data with what the environment says, each scalar read as if that stood there; and what is wrong with it."""
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
