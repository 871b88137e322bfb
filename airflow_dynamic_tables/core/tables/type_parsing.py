"""Types of columns from what Spark writes: DDL text, and schema JSON; and from what users write for Spark: schemas of sources."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn

from airflow_dynamic_tables.core.tables.types import JSON_NAMES, Array, DataType, Field, Map, Primitive, Struct
from airflow_dynamic_tables.exceptions import UnsupportedError

MAX_DEPTH = 100
"""Levels of nesting that a type may have; several times as many would exhaust the stack of a Python that reads it."""

_SHOWN = 200
"""Characters of a type's text that a message repeats."""

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
"""Spark's types without parts: the least and the greatest number of arguments, after :data:`_ALIASES` and defaults."""

_MAX_PRECISION = 38
_TEXTS = ("string", "char", "varchar")
_SHAPES = ("geometry", "geography")
_INTERVAL_UNITS = ("year", "month", "day", "hour", "minute", "second")


@lru_cache(maxsize=1024)
def parse_type(text: str) -> DataType:
    """Parse Spark's DDL text of one type.

    :raises UnsupportedError: when it is none; tells the first character that does not fit.
    """
    reader = _Reader(text)
    kind = reader.type()
    reader.end()
    return kind


def check_columns(text: str) -> None:
    """Check a schema of columns as Spark reads it: ``id bigint, name string NOT NULL COMMENT 'of the customer'``.

    :raises UnsupportedError: when Spark would refuse it; tells the first character that does not fit.
    """
    if _REMARK.search(text) is None:  # Spark takes comments, for which there is no need in a definition
        _ColumnsReader(text).columns()


def type_from_json(value: Any, depth: int = 1) -> DataType:
    """The type that a value of Spark's schema JSON describes.

    :raises UnsupportedError: for a type that a program defined, or one that is nested too deep.
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
    """The type of a name in Spark's JSON; a name that is younger than this module is kept as it is."""
    try:
        return parse_type(name)
    except UnsupportedError:
        return Primitive(name)


class _Reader:
    """Recursive descent through the tokens of one text."""

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
        """Check that nothing is left."""
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
        """A name, a colon that may be missing, a type, perhaps NOT NULL and a comment."""
        name = self._take_name("a name", quoted=True)
        self._skip(":")
        kind = self.type(depth)
        nullable = not self._skip("not")
        if not nullable:
            self._expect("null")
        comment = self._take_literal() if self._skip("comment") else None
        return Field(name, kind, nullable, comment)

    def _interval(self) -> Primitive:
        """The one that Spark calls just ``interval``, or one with its units: ``day to second``."""
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
        """Take the next token if it is this one, whatever its case."""
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
        """Refuse the text because of its next token."""
        known = [start for _, start in self._tokens] + [len(self._text)]
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[:_SHOWN]}…"
        raise UnsupportedError(f"{self.what} {shown} {mistake} (character {known[min(self._next, len(self._tokens))] + 1}).")


class _ColumnsReader(_Reader):
    """Reads what only Spark has to understand: all of its types and spellings, and nothing else."""

    what = "Schema"

    def columns(self) -> None:
        """Read a list of columns, which may be that of a struct, to the end of the text."""
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
            while self._peek().startswith(("'", '"')):  # Spark joins texts that follow one another
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
        """The number of a reference system, which no table here holds, or ``any``."""
        self._expect("(")
        if not self._skip("any"):
            self._take_number()
        self._expect(")")
        return Primitive(name)
