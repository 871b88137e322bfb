"""Values as plain data, as JSON has it, and back: dataclasses by their type hints.

A dataclass becomes a mapping of its fields, an enum its value, a tuple a list, a time ISO 8601, a length of time its seconds
and a path its text. A class with methods ``to_plain`` and ``from_plain`` of its own says itself what becomes of it. Fields may
come later: one that is missing has its default, unless it is :data:`REQUIRED`. The job takes this module along, so it keeps to
the standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""What may stand in the data for a text or a number."""

REQUIRED = {"required": True}
"""Metadata of a field that has a default and still has to be in the data: to leave it out would change what is meant."""


def to_plain(value: Any) -> Any:
    """A value as plain data; :func:`from_plain` gives it back.

    :raises TypeError: for a value of a type that has no plain form.
    """
    kind: Any = type(value)
    return _writer(kind)(value)


def from_plain(kind: type[_T], data: Any) -> _T:
    """What :func:`to_plain` was given, from what JSON made of its result.

    :param kind: a dataclass, or any other type that a field of one may have.
    :raises ValueError: when the data are something else: a field is unknown, missing or of another type.
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
    """How values of a type are written."""
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
    """How values of a type are read; ``None`` when they are what stands in the data."""
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
        return kind.from_plain  # type: ignore[no-any-return]  # whatever class it is
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if issubclass(kind, Enum | Path):
        return kind
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if issubclass(kind, datetime):
        # A database gives times as times.
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
        raise TypeError(f"nobody can tell which of {members} some data are")
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
    converters = [(name, convert) for name, convert in readers if convert is not None]
    marked = [field.name for field in fields(kind) if field.metadata.get("required")]
    required = [field.name for field in fields(kind) if _has_no_default(field)]

    def read(data: Any) -> Any:
        if isinstance(data, kind):
            return data  # a ledger has read it already
        if not isinstance(data, Mapping):
            raise TypeError(f"{short(data)} is no {kind.__name__}")
        if missing := _missing(marked, data):
            raise KeyError(missing)  # the whole is none of ours, whatever it is a part of
        if missing := _missing(required, data):
            raise ValueError(f"{missing!r} is missing")
        values = dict(data)
        for name, convert in converters:
            if name in values:
                try:
                    values[name] = convert(values[name])
                except (TypeError, AttributeError, ValueError) as error:
                    raise ValueError(f"{name}: {error}") from error
        return kind(**values)

    return read


def _has_no_default(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _missing(names: Iterable[str], data: Mapping[str, Any]) -> str | None:
    return next((name for name in names if name not in data), None)
