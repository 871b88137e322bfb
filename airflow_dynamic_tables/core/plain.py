"""Conversion of values to and from plain JSON data, driven by the type hints of dataclasses.

A dataclass becomes a mapping of its fields, an enum its value, a tuple a list, a time ISO 8601, a length of time its seconds and
a path its text. A class can define its own conversion by ``to_plain`` and ``from_plain``. Fields may be added later: a missing
field has its default, unless it is :data:`REQUIRED`. The job imports this module, so it depends on the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")

_Converter = Callable[[Any], Any]

_SCALARS: Mapping[type, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}
"""The types of data accepted for a scalar type."""

REQUIRED = {"required": True}
"""Metadata of a field with a default that must nevertheless be in the data, because omitting it would change the meaning."""


def to_plain(value: Any) -> Any:
    """A value as plain data; the inverse of :func:`from_plain`.

    :raises TypeError: for a type without plain form.
    """
    kind: Any = type(value)
    return _writer(kind)(value)


def from_plain(kind: type[_T], data: Any) -> _T:
    """Parse the JSON data that :func:`to_plain` returned.

    :param kind: a dataclass, or any other type that a field may have.
    :raises ValueError: when a field is unknown, missing or of another type.
    """
    hint: Any = kind
    read = _reader(hint) or _as_is
    try:
        value: _T = read(data)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"not a {getattr(kind, '__name__', kind)}: {error}") from error
    return value


def _as_is(value: Any) -> Any:
    return value


@cache
def _writer(kind: Any) -> _Converter:
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, str | int | float | NoneType):
        return _as_is
    if hasattr(kind, "to_plain"):
        return lambda value: value.to_plain()
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
        return lambda value: {name: to_plain(getattr(value, name)) for name in names}
    if issubclass(kind, Mapping):
        return lambda value: {to_plain(key): to_plain(item) for key, item in value.items()}
    if issubclass(kind, list | tuple):
        return lambda value: [to_plain(item) for item in value]
    if issubclass(kind, datetime):
        return datetime.isoformat
    if issubclass(kind, timedelta):
        return timedelta.total_seconds
    if issubclass(kind, Path):
        return str
    raise TypeError(f"{kind.__name__} has no plain form")


@cache
def _reader(hint: Any) -> _Converter | None:
    """The conversion of plain data to a type; ``None`` when they are identical."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, UnionType):
        return _optional_reader(arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_reader(_reader(arguments[1]))
    if isinstance(hint, type):
        return _class_reader(hint)
    return None


def _class_reader(kind: type) -> _Converter | None:
    if hasattr(kind, "from_plain"):
        return kind.from_plain  # type: ignore[no-any-return]  # any class
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, Enum | Path):
        return kind
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if issubclass(kind, datetime):
        # A database returns times as datetime objects.
        return lambda data: data if isinstance(data, datetime) else datetime.fromisoformat(data)
    if issubclass(kind, timedelta):
        return lambda data: timedelta(seconds=data)
    return None


def _scalar_reader(kind: type) -> _Converter:
    legal = _SCALARS[kind]

    def read(data: Any) -> Any:
        if type(data) in legal or (isinstance(data, legal) and not isinstance(data, bool)):
            return data
        raise TypeError(f"{short(data)} is no {kind.__name__}")

    return read


def _optional_reader(members: Sequence[Any]) -> _Converter | None:
    readers = [_reader(member) for member in members if member is not NoneType]
    convert = readers[0]
    if convert is None:
        return None
    if len(readers) > 1:
        raise TypeError(f"data of the types {members} cannot be told apart")
    return lambda data: None if data is None else convert(data)


def _tuple_reader(members: Sequence[Any]) -> _Converter:
    if members[-1:] != (...,):
        converters = [_reader(member) or _as_is for member in members]
        return lambda data: tuple(convert(item) for convert, item in zip(converters, data, strict=True))
    convert = _reader(members[0])

    def read(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list | tuple):
            raise TypeError(f"{short(data)} is no list")
        return tuple(data) if convert is None else tuple(map(convert, data))

    return read


def _mapping_reader(convert: _Converter | None) -> _Converter:
    def read(data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise TypeError(f"{short(data)} is no mapping")
        return dict(data) if convert is None else {key: convert(item) for key, item in data.items()}

    return read


def _dataclass_reader(kind: Any) -> _Converter:
    hints = get_type_hints(kind)
    readers = ((field.name, _reader(hints[field.name])) for field in fields(kind))
    converters = {name: convert for name, convert in readers if convert is not None}
    marked = {field.name for field in fields(kind) if field.metadata.get("required")}
    required = {field.name for field in fields(kind) if _has_no_default(field)}

    def read(data: Any) -> Any:
        if isinstance(data, kind):
            return data  # already parsed by a ledger
        if not isinstance(data, Mapping):
            raise TypeError(f"{short(data)} is no {kind.__name__}")
        if missing := marked - data.keys():
            raise KeyError(min(missing))  # KeyError, which invalidates the entire data instead of one field
        if missing := required - data.keys():
            raise ValueError(f"{min(missing)!r} is missing")
        values = dict(data)
        for name in data:
            convert = converters.get(name)
            if convert is None:
                continue
            try:
                values[name] = convert(data[name])
            except (TypeError, AttributeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from error
        return kind(**values)

    return read


def _has_no_default(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
