"""Column types as a tree, convertible to and from Spark's DDL and schema JSON; formats map the tree to their own types.

``str`` returns the DDL as ``DataType.simpleString`` writes it, with field names quoted where necessary.
:func:`~airflow_dynamic_tables.core.types.parse_type` returns the same tree, except for the nullability of nested values and their
comments, which that text lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn

from airflow_dynamic_tables.core.identifiers import quote_if_needed
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import SchemaEvolutionError, UnsupportedError

JSON_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""Types whose names in Spark's JSON and DDL differ."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts: ``int``, ``decimal`` with precision and scale, ``varchar`` with a length, ``interval day to second``.

    The name is Spark's, in lower case. Types unknown to Spark are kept, too.
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
    """A map from keys of one type to values of another."""

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
    """Named fields; also represents a schema."""

    fields: tuple[Field, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The type in Spark's JSON."""
        return {"type": "struct", "fields": [field.as_json() for field in self.fields]}

    def __str__(self) -> str:
        return f"struct<{','.join(map(str, self.fields))}>"


DataType = Primitive | Array | Map | Struct


def replace_primitives(kind: DataType, replacement: Callable[[Primitive], Primitive]) -> DataType:
    """A type with every primitive type in it replaced."""
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


MAX_DEPTH = 100
"""Maximum nesting of a type; several times as many levels would exhaust Python's stack."""

_SHOWN = 200
"""Maximum number of characters of a type in a message."""

_TOKEN = re.compile(r"""`(?:[^`]|``)*`|[rR]?'(?:[^'\\]|\\.)*'|[rR]?"(?:[^"\\]|\\.)*"|[^\s<>(),:`]+|\S""", re.DOTALL)
_REMARK = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}")
_ALIASES = {
    **{json: name for name, json in JSON_NAMES.items()},
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
    "timestamp_ltz": "timestamp",
}
_ARGUMENTS = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp"), (0, 0)),
    **dict.fromkeys(("timestamp_ntz", "string", "binary", "void", "variant"), (0, 0)),
    **dict.fromkeys(("char", "varchar", "geometry", "geography"), (1, 1)),
    "decimal": (2, 2),
    "time": (0, 1),
}
"""Spark's primitive types: minimum and maximum number of arguments, after :data:`_ALIASES` and defaults."""

_MAX_PRECISION = 38
_TEXTS = ("string", "char", "varchar")
_SHAPES = ("geometry", "geography")
_INTERVAL_UNITS = ("year", "month", "day", "hour", "minute", "second")


@lru_cache(maxsize=1024)
def parse_type(text: str) -> DataType:
    """Parse Spark's DDL text of one type.

    :raises UnsupportedError: names the first invalid character.
    """
    reader = _Reader(text)
    kind = reader.type()
    reader.end()
    return kind


def check_columns(text: str) -> None:
    """Check a schema of columns in Spark's syntax: ``id bigint, name string NOT NULL COMMENT 'of the customer'``.

    :raises UnsupportedError: when Spark would reject it; names the first invalid character.
    """
    if _REMARK.search(text) is None:  # Spark accepts SQL comments, which a definition does not need
        _ColumnsReader(text).columns()


def type_from_json(value: Any, depth: int = 1) -> DataType:
    """Parse a type from Spark's schema JSON.

    :raises UnsupportedError: for a user-defined type, or one that is nested too deep.
    """
    if depth > MAX_DEPTH:
        raise UnsupportedError(f"A Spark schema is nested deeper than {MAX_DEPTH} levels.")
    match value:
        case str():
            return _named(value)
        case {"type": "array", "elementType": element}:
            return Array(type_from_json(element, depth + 1), value.get("containsNull", True))
        case {"type": "map", "keyType": key, "valueType": item}:
            nullable = value.get("valueContainsNull", True)
            return Map(type_from_json(key, depth + 1), type_from_json(item, depth + 1), nullable)
        case {"type": "struct", "fields": fields}:
            return Struct(tuple(_field_from_json(field, depth + 1) for field in fields))
    kind = value.get("type") if isinstance(value, dict) else value
    raise UnsupportedError(f"Type {kind} of a Spark schema is not supported.")


def _field_from_json(field: dict[str, Any], depth: int) -> Field:
    metadata = field.get("metadata") or {}
    return Field(field["name"], type_from_json(field["type"], depth), field.get("nullable", True), metadata.get("comment"))


def _named(name: str) -> DataType:
    """The type of a name in Spark's JSON; unknown names are kept."""
    try:
        return parse_type(name)
    except UnsupportedError:
        return Primitive(name)


class _Reader:
    """A recursive descent parser of one text."""

    what = "Type"

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
        self._next = 0

    def type(self, depth: int = 1) -> DataType:
        """Read one type."""
        if depth > MAX_DEPTH:
            self._refuse(f"is nested deeper than {MAX_DEPTH} levels")
        name = self._take_name("a type").lower()
        match name:
            case "array":
                return self._array(depth + 1)
            case "map":
                return self._map(depth + 1)
            case "struct":
                return self._struct(depth + 1)
            case "interval":
                return self._interval()
        return self._primitive(_ALIASES.get(name, name))

    def end(self) -> None:
        """Check that no tokens are left."""
        if self._next < len(self._tokens):
            self._refuse(f"cannot be read beyond {self._peek()!r}")

    def _array(self, depth: int) -> Array:
        self._expect("<")
        element = self.type(depth)
        self._expect(">")
        return Array(element)

    def _map(self, depth: int) -> Map:
        self._expect("<")
        key = self.type(depth)
        self._expect(",")
        value = self.type(depth)
        self._expect(">")
        return Map(key, value)

    def _struct(self, depth: int) -> Struct:
        self._expect("<")
        if self._skip(">"):
            return Struct()
        fields = [self._field(depth)]
        while self._skip(","):
            fields.append(self._field(depth))
        self._expect(">")
        return Struct(tuple(fields))

    def _field(self, depth: int) -> Field:
        """A name, an optional colon, a type, optionally NOT NULL and a comment."""
        name = self._take_name("a name", quoted=True)
        self._skip(":")
        kind = self.type(depth)
        nullable = not self._skip("not")
        if not nullable:
            self._expect("null")
        comment = self._take_literal() if self._skip("comment") else None
        return Field(name, kind, nullable, comment)

    def _interval(self) -> Primitive:
        """Spark's plain ``interval``, or one with units: ``day to second``."""
        if self._peek().lower() not in _INTERVAL_UNITS:
            return Primitive("interval")
        units = [self._take().lower()]
        if self._skip("to"):
            units += ["to", self._take_name("a unit of time").lower()]
        return Primitive(" ".join(["interval", *units]))

    def _primitive(self, name: str) -> Primitive:
        arguments: list[int] = []
        if self._skip("("):
            arguments.append(self._take_number())
            while self._skip(","):
                arguments.append(self._take_number())
            self._expect(")")
        if name == "decimal":
            arguments += (10, 0)[len(arguments) :]  # Spark's defaults
        return Primitive(name, tuple(arguments))

    def _peek(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _skip(self, expected: str) -> bool:
        """Consume the next token if it is this one, ignoring case."""
        if self._peek().lower() != expected:
            return False
        self._next += 1
        return True

    def _expect(self, expected: str) -> None:
        if not self._skip(expected):
            self._refuse_next(repr(expected))

    def _take_name(self, due: str, *, quoted: bool = False) -> str:
        token = self._peek()
        if quoted and len(token) > 1 and token.startswith("`"):
            return self._take()[1:-1].replace("``", "`")
        if not token or token[0] in "<>(),:`'":
            self._refuse_next(due)
        return self._take()

    def _take_number(self) -> int:
        if not _NUMBER.fullmatch(self._peek()):
            self._refuse_next("a number")
        return int(self._take())

    def _take_literal(self) -> str:
        token = self._peek()
        if len(token) < 2 or not token.lstrip("rR").startswith(("'", '"')):
            self._refuse_next("a text")
        return re.sub(r"\\(.)", r"\1", self._take().lstrip("rR")[1:-1], flags=re.DOTALL)

    def _refuse_next(self, due: str) -> NoReturn:
        self._refuse(f"has {self._peek() or 'the end'!r} where {due} is due")

    def _refuse(self, mistake: str) -> NoReturn:
        known = [start for _, start in self._tokens] + [len(self._text)]
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        raise UnsupportedError(f"{self.what} {shown} {mistake} (character {known[min(self._next, len(self._tokens))] + 1}).")


class _ColumnsReader(_Reader):
    """A stricter parser of schemas that only Spark interprets: it accepts exactly Spark's types and spellings."""

    what = "Schema"

    def columns(self) -> None:
        """Read a list of columns, or a struct, to the end of the text."""
        if self._skip_struct():
            return
        self._column()
        while self._skip(","):
            self._column()
        self.end()

    def _skip_struct(self) -> bool:
        if [token.lower() for token, _ in self._tokens[:2]] != ["struct", "<"]:
            return False
        self.type()
        self.end()
        return True

    def _column(self) -> None:
        if not (self._peek().startswith("`") or _PLAIN_NAME.fullmatch(self._peek())):
            self._refuse_next("a name (in backticks, unless it is of letters, digits and underscores)")
        self._take_name("a name", quoted=True)
        self._skip(":")
        self.type()
        if self._skip("not"):
            self._expect("null")
        if self._skip("comment"):
            self._take_literal()
            while self._peek().startswith(("'", '"')):  # Spark concatenates adjacent string literals
                self._take_literal()

    def _interval(self) -> Primitive:
        kind = super()._interval()
        units = [_INTERVAL_UNITS.index(unit) if unit in _INTERVAL_UNITS else -1 for unit in kind.name.split()[1::2]]
        if units != sorted(set(units)) or -1 in units or (len(units) > 1 and (units[0] < 2) != (units[1] < 2)):
            self._refuse(f"has {kind}, which is no interval of Spark's")
        return kind

    def _primitive(self, name: str) -> Primitive:
        if name not in _ARGUMENTS:
            self._next -= 1
            self._refuse(f"has {self._peek()!r} where a type of Spark's is due")
        if name in _SHAPES:
            return self._shape(name)
        kind = super()._primitive(name)
        least, most = _ARGUMENTS[name]
        if not least <= len(kind.arguments) <= most:
            self._refuse(f"has {kind}, but {name} takes {f'{least} to {most}' if least < most else most or 'no'} numbers")
        if name == "decimal" and not kind.arguments[1] <= kind.arguments[0] <= _MAX_PRECISION:
            self._refuse(f"has {kind}, but a decimal has at most {_MAX_PRECISION} digits, and its scale is within them")
        if name in _TEXTS and self._skip("collate"):
            self._take_name("a collation")
        if name == "timestamp" and self._skip("without"):
            self._expect("time")
            self._expect("zone")
        return kind

    def _shape(self, name: str) -> Primitive:
        """The number of a spatial reference system or ``any``; it is not stored."""
        self._expect("(")
        if not self._skip("any"):
            self._take_number()
        self._expect(")")
        return Primitive(name)


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """Types and names that columns of a table cannot have.

    ``types`` are names of types, each with the reason and the remedy. Names of nested fields must not contain ``signs``; if there
    are any, names must not be empty either.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    signs: str = ""

    def check(self, columns: Sequence[Column]) -> None:
        """Check columns.

        :raises SchemaEvolutionError: names the first unsupported column, with the reason and the remedy.
        """
        for column in columns:
            for part in _parts(parse_type(column.type)) if self.types or self.signs else ():
                if isinstance(part, Primitive) and part.name in self.types:
                    raise SchemaEvolutionError(f"Column {column.name!r} has type {column.type}; {self.types[part.name]}.")
                if isinstance(part, Field) and self._is_refused(part.name):
                    signs = " ".join(self.signs)
                    raise SchemaEvolutionError(
                        f"Column {column.name!r} has a nested field {part.name!r}; names of fields are not empty here and "
                        f"have none of the signs {signs}: give the field another name in the query."
                    )

    def _is_refused(self, name: str) -> bool:
        return bool(self.signs) and (not name or any(sign in name for sign in self.signs))


NO_LIMITS = TypeLimits()


def _parts(kind: DataType) -> Iterator[Primitive | Field]:
    """The primitive types in a type, and its nested fields."""
    match kind:
        case Primitive():
            yield kind
        case Array(element):
            yield from _parts(element)
        case Map(key, value):
            yield from _parts(key)
            yield from _parts(value)
        case Struct(fields):
            for one in fields:
                yield one
                yield from _parts(one.type)


_FAMILIES = (
    frozenset({"tinyint", "smallint", "int", "bigint", "decimal"}),
    frozenset({"float", "double"}),
    frozenset({"string", "char", "varchar"}),
)
"""Types whose values are compared exactly with each other."""


def are_comparable(one: str, other: str) -> bool:
    """Return whether Spark finds equal values of two types without converting them to another kind of type, such as text."""
    try:
        kinds = parse_type(one), parse_type(other)
    except UnsupportedError:
        return one == other
    names = {kind.name if isinstance(kind, Primitive) else str(kind) for kind in kinds}
    has_order = not any(isinstance(kind, Map) or str(kind) == "variant" for kind in kinds)
    return has_order and (len(names) == 1 or any(names <= family for family in _FAMILIES))


def column_types(schema: str | None, partition_keys: Sequence[str]) -> dict[str, str]:
    """Return the types of columns as the job reads them, where they are known without the files.

    :param schema: Spark DDL; keys that it omits are strings.
    """
    keys = dict.fromkeys(partition_keys, "string")
    try:
        fields = parse_type(f"struct<{schema}>") if schema is not None else Struct()
    except UnsupportedError:
        return {}
    return {**keys, **{each.name: str(each.type) for each in fields.fields}} if isinstance(fields, Struct) else {}
