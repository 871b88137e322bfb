"""Types of columns as a tree, with Spark's two texts of it: DDL and schema JSON. Formats map the tree to types of their own.

``str`` gives the DDL as ``DataType.simpleString`` writes it, with names of fields quoted where they need it:
:func:`~airflow_dynamic_tables.core.tables.type_parsing.parse_type` gives the same tree back, but for what that text never tells:
whether a nested value may be null, and its comment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_dynamic_tables.core.identifiers import quote_if_needed

JSON_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""Types that have another name in Spark's JSON than in its DDL."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts: ``int``, ``decimal`` with precision and scale, ``varchar`` with a length, ``interval day to second``.

    The name is Spark's, in lower case. One that Spark may not know is kept as well.
    """

    name: str
    arguments: tuple[int, ...] = ()

    def as_json(self) -> str:
        """The type in Spark's JSON."""
        return f"{JSON_NAMES.get(self.name, self.name)}{self._in_brackets()}"

    def __str__(self) -> str:
        return f"{self.name}{self._in_brackets()}"

    def _in_brackets(self) -> str:
        return f"({','.join(map(str, self.arguments))})" if self.arguments else ""


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values of one type."""

    element: DataType
    contains_null: bool = True

    def as_json(self) -> dict[str, Any]:
        """The type in Spark's JSON."""
        return {"type": "array", "elementType": self.element.as_json(), "containsNull": self.contains_null}

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Values of one type by keys of another."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def as_json(self) -> dict[str, Any]:
        """The type in Spark's JSON."""
        return {
            "type": "map",
            "keyType": self.key.as_json(),
            "valueType": self.value.as_json(),
            "valueContainsNull": self.value_contains_null,
        }

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    """One named value of a struct."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The field in Spark's JSON."""
        metadata = {} if self.comment is None else {"comment": self.comment}
        return {"name": self.name, "type": self.type.as_json(), "nullable": self.nullable, "metadata": metadata}

    def __str__(self) -> str:
        return f"{quote_if_needed(self.name)}:{self.type}"


@dataclass(frozen=True, slots=True)
class Struct:
    """Named values of several types; a schema is one, too."""

    fields: tuple[Field, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The type in Spark's JSON."""
        return {"type": "struct", "fields": [field.as_json() for field in self.fields]}

    def __str__(self) -> str:
        return f"struct<{','.join(map(str, self.fields))}>"


DataType = Primitive | Array | Map | Struct


def replace_primitives(kind: DataType, replacement: Callable[[Primitive], Primitive]) -> DataType:
    """The same type with every type that has no parts replaced."""
    match kind:
        case Primitive():
            return replacement(kind)
        case Array(element, contains_null):
            return Array(replace_primitives(element, replacement), contains_null)
        case Map(key, value, contains_null):
            return Map(replace_primitives(key, replacement), replace_primitives(value, replacement), contains_null)
        case Struct(fields):
            replaced = (replace_primitives(field.type, replacement) for field in fields)
            return Struct(tuple(replace(field, type=kind) for field, kind in zip(fields, replaced, strict=True)))
