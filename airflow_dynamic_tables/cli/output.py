"""Printing values on stdout as a table, JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

import yaml
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.results import items, plain

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WIDE = 100_000
"""Width of a table written to a file or pipe; nothing is wrapped or cut."""

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

_BETWEEN = "   "

_LONGEST_TEXT = 160
"""Maximum length of an error or a reason in a table with one line per record."""

_WRITTEN = ("table", "version", "rows", "files", "bytes", "partitions", "data_timestamp", "action", "reason", "seconds")
"""Fields of a refresh, rollback or publication that a table shows."""

_SHOWN = 4
"""How many items of a list a table cell shows."""


def listing(results: Sequence[DataclassInstance], form: str, columns: Sequence[str] = ()) -> None:
    """Print results of one kind.

    :param form: ``table``, ``json`` or ``yaml``.
    :param columns: fields that the table shows, in that order (default: all); json and yaml contain every field.
    """
    if form != "table":
        _dump(results, form)
    else:
        rows(results, columns)


def rows(records: Sequence[Any], columns: Sequence[str] = ()) -> None:
    """Print dataclasses or mappings of one kind as a table; see :func:`listing`."""
    if records:
        names = columns or list(items(records[0]))
        table([name.replace("_", " ") for name in names], [[row[name] for name in names] for row in map(items, records)])


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows with a header."""
    cells = [tuple(_cell(value) for value in row) for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    console = _console()
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) <= console.width and all(map(str.isprintable, chain(*cells))):
        # Nothing has to be wrapped. Rich needs more than a millisecond per row, and a listing may have thousands.
        console.print(Text(_padded(columns, widths).rstrip(), style="bold"), soft_wrap=True)
        print("─" * cell_len(_padded(columns, widths)))
        print("\n".join(_padded(row, widths).rstrip() for row in cells))
        return
    printed = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        printed.add_column(name, overflow="fold")
    for row in cells:
        printed.add_row(*map(Text, row))
    _print(printed, console)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _BETWEEN.join(cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))


def record(result: DataclassInstance, form: str) -> None:
    """Print one result; as a table, one line per field."""
    if form != "table":
        _dump(result, form)
    else:
        lines(items(result))


def lines(fields: Mapping[str, Any]) -> None:
    """Print one line per field."""
    printed = Table(box=None, show_header=False, pad_edge=False)
    printed.add_column(no_wrap=True)
    printed.add_column(overflow="fold")
    for name, item in fields.items():
        printed.add_row(Text(name.replace("_", " "), style="bold"), Text(_cell(item)))
    _print(printed, _console())


def written(done: DataclassInstance, form: str) -> None:
    """Print the history record of a write, as a table with its most important fields; without a record, the version."""
    fields = items(done)
    if form == "table" and "action" in fields:
        lines({name: fields[name] for name in _WRITTEN})
    else:
        record(done, form)


def shortened(text: str | None) -> str | None:
    """Shorten a sentence for a table cell; json and yaml contain all of it."""
    return text if text is None or len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: ``1 table``, ``2 tables``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def summed(counts: Mapping[str, int]) -> str:
    """Format counts by kind: ``2 registered, 1 unchanged``."""
    return ", ".join(f"{number:,} {words}" for words, number in counts.items()) or "none"


def _dump(value: Any, form: str) -> None:
    if form == "json":
        print(json.dumps(plain(value), indent=2, ensure_ascii=False))
    else:
        print(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True), end="")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, Enum):
        return str(getattr(value, "words", value.value))
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds").replace("+00:00", "Z")
    if isinstance(value, TableIdentifier):
        return str(value)
    if isinstance(value, PartitionSet):
        return str(value) if value.is_whole or value.is_empty else _cell(value.specs)
    if is_dataclass(value) or isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(item)}" for key, item in items(value).items())
    if isinstance(value, list | tuple):
        shown = map(_cell, value if len(value) <= _SHOWN else (*value[: _SHOWN - 1], f"… {_cell(value[-1])} ({len(value)})"))
        return ", ".join(shown)
    return str(value)


def _duration(value: timedelta) -> str:
    """Format a duration in its two largest units: ``3 d 4 h``, ``15 min``, ``-2 h``."""
    left = abs(int(value.total_seconds()))
    parts: list[str] = []
    for unit, seconds in _UNITS:
        number, left = divmod(left, seconds)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
    sign = "-" if value < timedelta() else ""
    return sign + (" ".join(part for part in parts[:2] if part) or "0 s")


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def _print(printed: Table, console: Console) -> None:
    with console.capture() as capture:
        console.print(printed)
    # A table is as wide as its longest line; the trailing padding of the other lines is removed.
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))
