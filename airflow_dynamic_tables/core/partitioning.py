"""Partition keys that are computed of columns, as Iceberg has them: ``day(ts)``, ``bucket(16, id)``.

Among partition keys, which are the names of columns, such a key is its text in one spelling.
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
"""From the coarsest to the finest."""

_MOST = 2**31 - 1
"""Iceberg keeps buckets and widths as numbers of 32 bits."""

_DECIMAL_DIGITS = {"bucket": 30, "truncate": 36}
"""Digits of a decimal of which Spark computes a transform without losing one."""


@dataclass(frozen=True, slots=True)
class Transform:
    """What is computed of a column of some Spark types; ``number`` says what its number means, for one that has one."""

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
"""Every transform by its name."""

_ALIASES = {**{f"{name}s": name for name in TIME_TRANSFORMS}, "date": "day"}
"""What other engines call a transform."""

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_PIECE = re.compile(r"`(?:[^`]|``)*`|.", re.DOTALL)
_EXAMPLES = "year(ts) | month(ts) | day(ts) | hour(ts) | bucket(16, id) | truncate(4, name)"


@dataclass(frozen=True, slots=True)
class HiddenKey:
    """One key that is computed of a column; ``number`` is that of buckets, or the width."""

    transform: str
    column: str
    number: int | None = None

    def __str__(self) -> str:
        number = "" if self.number is None else f"{self.number}, "
        return f"{self.transform}({number}{self.column})"

    @property
    def field(self) -> str:
        """The name of the partition field that Iceberg keeps, as other engines name it."""
        named = {"bucket": f"bucket_{self.number}", "truncate": f"trunc_{self.number}"}
        return f"{self.column}_{named.get(self.transform, self.transform)}"

    def type_problem(self, kind: str) -> str | None:
        """Why it cannot be computed of a column of that type, and what to do; ``None`` when it can.

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
    """A partition key as what is computed of a column; ``None`` when it is the name of a column.

    :raises ValueError: when it is neither; says what to write.
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
    """What somebody may have meant whose key is no column, as the end of a sentence; nothing when nobody can tell."""
    bare = key.strip("`\"' ").rpartition(".")[2].strip("`\"' ")
    if bare in columns:
        return f"; write {bare}"
    words = re.split(r"\W+", key.strip().lower())
    meant = any(_ALIASES.get(word, word) in TRANSFORMS for word in words) and len(words) > 1
    return f"; a transform is one of {_EXAMPLES}" if meant else did_you_mean(key, columns)


def spelled(key: str) -> str:
    """A partition key in its one spelling.

    :raises ValueError: see :func:`hidden_key`.
    """
    hidden = hidden_key(key)
    return key if hidden is None else str(hidden)


def rejoined(items: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Partition keys of a list in YAML, and where each stands: there ``[bucket(16, id)]`` has two items."""
    numbers = iter(range(len(items)))
    for number in numbers:
        depths = accumulate(item.count("(") - item.count(")") for item in items[number:])
        end = next((end for end, depth in enumerate(depths, number + 1) if depth <= 0), number + 1)
        for _ in range(number + 1, end):
            next(numbers)
        yield number, ", ".join(items[number:end])


def split_keys(text: str) -> Iterator[tuple[int, str]]:
    """Partition keys in a text, separated by commas that stand in no parentheses and no back-quotes, and where each begins."""
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
    """The keys that are computed of columns."""
    return tuple(hidden for hidden in map(hidden_key, keys) if hidden is not None)


def source_column(key: str) -> str:
    """The column that a key is, or is computed of."""
    hidden = hidden_key(key)
    return key if hidden is None else hidden.column


def repeated(keys: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Keys that add nothing to an earlier one, and why: Iceberg takes no key twice, and one time of a column."""
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
