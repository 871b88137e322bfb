"""What a unit test of a query means once it is read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.query_tests.values import Row
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.definitions.model import DynamicTable


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """One row as somebody wrote it: texts, lists and mappings by column; ``at`` makes a mistake of the value of a column."""

    values: Mapping[str, object]
    at: Callable[[str, str], Mistake]


@dataclass(frozen=True, slots=True)
class GivenRows:
    """What stands for one table: rows of all ``columns``, or a query that reads nothing.

    Then of ``columns`` the types are known, and there may be ``others``, or any others when that is ``None``.
    """

    identifier: TableIdentifier
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    query: str | None = None
    others: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What the query has to return: rows, whose types only the query knows, or a query that reads nothing.

    ``named`` are the columns that somebody wrote down, ``key`` and ``only`` are as declared. ``types`` are those of columns, as
    tables have them.
    """

    rows: tuple[WrittenRow, ...]
    named: tuple[str, ...]
    query: str | None = None
    key: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueryTest:
    """One unit test. ``schedule_time`` and ``partitions`` decide what of the table is refreshed, the latter first; neither: all.

    ``at`` makes a mistake of one of its keys.
    """

    table: DynamicTable
    name: str
    given: tuple[GivenRows, ...]
    expected: ExpectedRows
    at: Callable[[str, str], Mistake]
    schedule_time: datetime | None = None
    partitions: PartitionSet | None = None

    @property
    def full_name(self) -> str:
        """What no other test is called."""
        return f"{self.table.identifier}::{self.name}"
