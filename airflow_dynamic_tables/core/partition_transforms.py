"""Iceberg's partition transforms as partition keys: ``day(ts)``, ``bucket(16, id)``.

Partition keys are strings: names of columns, or canonical texts of transforms.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from airflow_dynamic_tables.core.mistakes import did_you_mean

_DATES = ("date",)
_TIMES = ("timestamp", "timestamp_ntz")
_PLAIN = ("int", "bigint", "decimal", "string", "binary")

TIME_TRANSFORMS = ("year", "month", "day", "hour")
"""From coarsest to finest."""

_MOST = 2**31 - 1
"""Iceberg stores bucket counts and widths as 32-bit integers."""

_DECIMAL_DIGITS = {"bucket": 30, "truncate": 36}
"""Maximum precision of a decimal for which Spark computes a transform exactly."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of columns of some Spark types; ``number`` describes its numeric argument, if it has one."""

    types: tuple[str, ...]
    number: str | None = None


TRANSFORMS: Mapping[str, Transform] = {
    "year": Transform((*_DATES, *_TIMES)),
    "month": Transform((*_DATES, *_TIMES)),
    "day": Transform((*_DATES, *_TIMES)),
    "hour": Transform(_TIMES),
    "bucket": Transform((*_PLAIN, *_DATES, *_TIMES), "how many buckets"),
    "truncate": Transform(_PLAIN, "the width"),
}
"""All transforms by name."""

_ALIASES = {**{f"{name}s": name for name in TIME_TRANSFORMS}, "date": "day"}
"""Other engines' names of transforms."""

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_PIECE = re.compile(r"`(?:[^`]|``)*`|.", re.DOTALL)
_EXAMPLES = "year(ts) | month(ts) | day(ts) | hour(ts) | bucket(16, id) | truncate(4, name)"


@dataclass(frozen=True, slots=True)
class HiddenKey:
    """A key computed from a column; ``number`` is the bucket count or the width."""

    transform: str
    column: str
    number: int | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f"{self.number}, "
        return f"{self.transform}({number}{self.column})"

    @property
    def field(self) -> str:
        """The name of Iceberg's partition field, as assigned by other engines."""
        named = {"bucket": f"bucket_{self.number}", "truncate": f"trunc_{self.number}"}
        return f"{self.column}_{named.get(self.transform, self.transform)}"

    def type_problem(self, kind: str) -> str | None:
        """Return why it cannot be computed from a type, with the remedy; ``None`` when it can.

        :param kind: Spark's DDL text of the type.
        """
        family, _, digits = kind.partition("(")
        legal = TRANSFORMS[self.transform].types
        if family not in legal:
            return f"{self} is of a column of type {kind}, and {self.transform} takes {' | '.join(legal)}; cast it in the query"
        precision, _, scale = digits.rstrip(")").partition(",")
        most = _DECIMAL_DIGITS.get(self.transform, 0)
        if family == "decimal" and int(precision or 10) > most and int(scale or 0) > 0:
            return f"{self} is of a column of type {kind}, and {self.transform} takes at most {most} digits; cast it in the query"
        return None


def hidden_key(key: str) -> HiddenKey | None:
    """Parse a partition key; ``None`` when it is the name of a column.

    :raises ValueError: with the correction when it is invalid.
    """
    call = _CALL.fullmatch(key)
    if call is None:
        return None
    name = call[1].lower()
    name = _ALIASES.get(name, name)
    if name == "identity":
        raise ValueError(f"{key.strip()!r} is the column itself; write {_column(call[2])}")
    if name not in TRANSFORMS:
        raise ValueError(f"{call[1]!r} is no transform; use {_EXAMPLES}{did_you_mean(call[1], TRANSFORMS)}")
    number, column = _arguments(name, key.strip(), call[2])
    return HiddenKey(name, column, number)


def _arguments(name: str, key: str, text: str) -> tuple[int | None, str]:
    if TRANSFORMS[name].number is None:
        if "," in text or not _column(text):
            raise ValueError(f"{key!r} needs one column; write {name}(ts)")
        return None, _column(text)
    said, comma, column = text.partition(",")
    example = "bucket(16, id)" if name == "bucket" else "truncate(4, name)"
    if not comma or not _column(column) or not said.strip().lstrip("-").isdecimal():
        raise ValueError(f"{key!r} needs {TRANSFORMS[name].number} and then a column; write {example}")
    number = int(said)
    if not 1 <= number <= _MOST:
        raise ValueError(f"{key!r}: {TRANSFORMS[name].number} is a whole number from 1 to {_MOST}, not {number}")
    return number, _column(column)


def _column(text: str) -> str:
    name = text.strip()
    return name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name


def misspelt(key: str, columns: Collection[str]) -> str:
    """A suggestion for a key that is not a column, as the end of a sentence; empty without one."""
    bare = key.strip("`\"' ").rpartition(".")[2].strip("`\"' ")
    if bare in columns:
        return f"; write {bare}"
    words = re.split(r"\W+", key.strip().lower())
    meant = any(_ALIASES.get(word, word) in TRANSFORMS for word in words) and len(words) > 1
    return f"; a transform is one of {_EXAMPLES}" if meant else did_you_mean(key, columns)


def spelled(key: str) -> str:
    """The canonical spelling of a partition key.

    :raises ValueError: see :func:`hidden_key`.
    """
    hidden = hidden_key(key)
    return key if hidden is None else str(hidden)


def rejoined(items: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Partition keys of a YAML list with their item numbers: YAML splits ``[bucket(16, id)]`` into two items."""
    numbers = iter(range(len(items)))
    for number in numbers:
        depths = accumulate(item.count("(") - item.count(")") for item in items[number:])
        end = next((end for end, depth in enumerate(depths, number + 1) if depth <= 0), number + 1)
        for _ in range(number + 1, end):
            next(numbers)
        yield number, ", ".join(items[number:end])


def split_keys(text: str) -> Iterator[tuple[int, str]]:
    """Partition keys of a text with their offsets, separated by commas outside parentheses and back-quotes."""
    depth = start = 0
    for piece in _PIECE.finditer(f"{text}," if text.strip() else ""):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if piece[0] == "," and (depth <= 0 or piece.end() > len(text)):
            key = text[start : piece.start()]
            yield start + len(key) - len(key.lstrip()), key.strip()
            start = piece.end()


def plain_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys that are columns of the table."""
    return tuple(key for key in keys if _CALL.fullmatch(key) is None)


def hidden_keys(keys: Iterable[str]) -> tuple[HiddenKey, ...]:
    """The keys that are computed from columns."""
    return tuple(hidden for hidden in map(hidden_key, keys) if hidden is not None)


def source_column(key: str) -> str:
    """The column of a key, directly or as the argument of its transform."""
    hidden = hidden_key(key)
    return key if hidden is None else hidden.column


def repeated(keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Redundant keys with reasons: Iceberg allows neither duplicate keys nor several time transforms of a column."""
    times: dict[str, HiddenKey] = {}
    for number, key in enumerate(keys):
        hidden = hidden_key(key)
        if key in keys[:number]:
            yield number, f"partition key {key!r} is listed twice"
        elif hidden is not None and hidden.transform in TIME_TRANSFORMS:
            other = times.setdefault(hidden.column, hidden)
            if other is not hidden:
                finest = max(other, hidden, key=lambda one: TIME_TRANSFORMS.index(one.transform))
                yield number, f"{other} and {hidden} are of one column; {finest} alone says it all"
