"""Values of any type as cells: nested tuples of texts, in which every value has one spelling.

A cell is ``None`` for NULL, a text for a value without parts, and a tuple for one with parts: of elements, of the values of a
struct in the order of its fields, of pairs (key, value) sorted by key. Which it is, only its type tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_dynamic_tables.core.identifiers import literal
from airflow_dynamic_tables.core.query_tests.scalars import micros_of, spelled, time_of_micros
from airflow_dynamic_tables.core.tables.types import Array, DataType, Map, Primitive, Struct, replace_primitives

Cell = str | tuple[Any, ...] | None
"""One value; see the module."""

Row = tuple[Cell, ...]

_TEXTS = ("string", "char", "varchar")


def cell_of(value: object, kind: DataType, zone: str) -> Cell:
    """The cell of what somebody wrote: texts, lists and mappings, as YAML has them.

    :param zone: of times that are written without an offset.
    :raises ValueError: when it is no value of that type; says what is.
    """
    if value is None:
        return None
    match kind:
        case Array(element):
            if not isinstance(value, list):
                raise ValueError(f"{_shortened(value)} is no {kind}; write a list")
            return tuple(_not_null(cell_of(item, element, zone), kind.contains_null, "element") for item in value)
        case Map():
            return _map_of(value, kind, zone)
        case Struct():
            return _struct_of(value, kind, zone)
    if not isinstance(value, str):
        raise ValueError(f"{_shortened(value)} is no {kind}")
    return spelled(value, kind, zone)


def _map_of(value: object, kind: Map, zone: str) -> Cell:
    if not isinstance(value, Mapping):
        raise ValueError(f"{_shortened(value)} is no {kind}; write a mapping")
    pairs = {
        cell_of(key, kind.key, zone): _not_null(cell_of(item, kind.value, zone), kind.value_contains_null, "value")
        for key, item in value.items()
    }
    if len(pairs) < len(value):
        raise ValueError(f"{_shortened(value)} has a key twice")
    return _sorted(pairs.items())


def _struct_of(value: object, kind: Struct, zone: str) -> Cell:
    names = [field.name for field in kind.fields]
    if not isinstance(value, Mapping):
        raise ValueError(f"{_shortened(value)} is no {kind}; write a mapping of {', '.join(names)}")
    if unknown := [key for key in value if key not in names]:
        raise ValueError(f"{unknown[0]!r} is no field of {kind}; it has {', '.join(names)}")
    return tuple(
        _not_null(cell_of(value.get(field.name), field.type, zone), field.nullable, f"field {field.name!r}")
        for field in kind.fields
    )


def _not_null(cell: Cell, nullable: bool, what: str) -> Cell:
    if cell is None and not nullable:
        raise ValueError(f"{what} is NULL, and its type does not allow that")
    return cell


def cell_of_spark(value: Any, kind: DataType, zone: str) -> Cell:
    """The cell of what the job wrote down: texts, lists, for a struct a mapping in the order of its fields, for a map a list of
    such mappings of two. Times are microseconds since 1970.
    """
    if value is None:
        return None
    match kind:
        case Array(element):
            return tuple(cell_of_spark(item, element, zone) for item in value)
        case Map():
            pairs = (tuple(pair.values()) for pair in value)
            return _sorted((cell_of_spark(key, kind.key, zone), cell_of_spark(item, kind.value, zone)) for key, item in pairs)
        case Struct(fields):
            return tuple(cell_of_spark(item, field.type, zone) for item, field in zip(value.values(), fields, strict=True))
        case Primitive("timestamp"):
            return time_of_micros(int(value), zone)
    try:
        return spelled(str(value), kind, zone)
    except ValueError:  # a date that no calendar here has
        return str(value)


def _sorted(pairs: Any) -> Cell:
    """The pairs of a map, whose order means nothing."""
    return tuple(sorted(pairs, key=repr))


def comparable(cell: Cell, kind: DataType) -> Cell:
    """A cell that equals another one when Spark takes their values for the same: 0.0 and -0.0, too. NaN is NaN, NULL is NULL."""
    if cell is None:
        return None
    match kind:
        case Array(element):
            return tuple(comparable(item, element) for item in cell)
        case Map():
            return _sorted((comparable(key, kind.key), comparable(item, kind.value)) for key, item in _pairs(cell))
        case Struct(fields):
            return tuple(comparable(item, field.type) for item, field in zip(cell, fields, strict=True))
        case Primitive("float" | "double"):
            return "0.0" if cell == "-0.0" else cell
    return cell


def to_plain(cell: Cell, kind: DataType) -> Any:
    """A cell as people read it, and as JSON has it: texts, lists and mappings."""
    if cell is None:
        return None
    match kind:
        case Array(element):
            return [to_plain(item, element) for item in cell]
        case Map():
            return {str(to_plain(key, kind.key)): to_plain(item, kind.value) for key, item in _pairs(cell)}
        case Struct(fields):
            return {field.name: to_plain(item, field.type) for item, field in zip(cell, fields, strict=True)}
    return cell


def _pairs(cell: Any) -> Sequence[tuple[Cell, Cell]]:
    return [(key, item) for key, item in cell]


def sql_of(cell: Cell, kind: DataType) -> str:
    """An expression of Spark SQL that has exactly this value and type."""
    seen = seen_by_readers(kind)
    if cell is None:
        return f"CAST(NULL AS {seen})"
    match kind:
        case Array(element):
            parts = f"array({', '.join(sql_of(item, element) for item in cell)})"
        case Map():
            parts = f"map({', '.join(f'{sql_of(key, kind.key)}, {sql_of(item, kind.value)}' for key, item in _pairs(cell))})"
        case Struct(fields):
            named = (f"{literal(field.name)}, {sql_of(item, field.type)}" for item, field in zip(cell, fields, strict=True))
            parts = f"named_struct({', '.join(named)})"
        case Primitive(name):
            return _scalar_sql(str(cell), name, seen)
    return f"CAST({parts} AS {seen})"


def _scalar_sql(text: str, name: str, kind: DataType) -> str:
    if name in _TEXTS:
        return literal(text)
    if name == "binary":
        return f"X'{text}'"
    if name == "timestamp":
        return f"timestamp_micros({micros_of(text)})"
    return f"CAST({literal(text)} AS {kind})"


def seen_by_readers(kind: DataType) -> DataType:
    """The type that a reader of a table sees: texts of limited length are texts."""
    return replace_primitives(kind, lambda one: Primitive("string") if one.name in _TEXTS else one)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
