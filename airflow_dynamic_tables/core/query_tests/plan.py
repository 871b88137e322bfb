"""What unit tests give to the job and what comes back, both as JSON.

The job runs from a zip with nothing but pyspark, so this module keeps to the standard library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.schema import Column

MOST_ROWS = 10_000
"""Rows that the query of a test may return: they are compared one by one, and a person reads what is different."""


@dataclass(frozen=True, slots=True)
class GivenTable:
    """What stands for one table that the query reads: the rows of ``query``, which itself reads nothing.

    Of ``columns`` the types are known: those that the rows lack are NULL, others have to fit. Behind them come columns of rows
    whose types nobody knows: those named in ``others``, or any when that is ``None``. Rows that are alike in the columns of
    ``deduplicate``, if there are any, are one.
    """

    identifier: str
    view: str
    query: str
    columns: tuple[Column, ...] = ()
    others: tuple[str, ...] | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryTestPlan:
    """One test: the refresh that it plays, of which nothing is written, and a query for the rows it expects, if that is how.

    Sources of the refresh for which no rows are given are read at their planned version. With a ``limit``, the first rows are
    returned instead of an error for more than :data:`MOST_ROWS`, and columns may share a name.
    """

    refresh: RefreshPlan
    given: tuple[GivenTable, ...]
    expected: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReturnedRows:
    """The rows of a query: each a JSON list of values, in which a value without parts is a text."""

    columns: tuple[Column, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryTestOutcome:
    """What became of one test: the rows, or why there are none."""

    seconds: float
    returned: ReturnedRows | None = None
    expected: ReturnedRows | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QueryTestPlans:
    """All tests of one job."""

    plans: tuple[QueryTestPlan, ...]

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> QueryTestPlans:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when the text is something else.
        """
        return from_plain(cls, json.loads(text))


@dataclass(frozen=True, slots=True)
class QueryTestOutcomes:
    """What became of all tests, in their order."""

    outcomes: tuple[QueryTestOutcome, ...]

    def to_json(self) -> str:
        """Serialize; :meth:`from_json` gives the same value back."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> QueryTestOutcomes:
        """Parse what :meth:`to_json` wrote.

        :raises ValueError: when the text is something else.
        """
        return from_plain(cls, json.loads(text))


def outcomes_location(location: str) -> str:
    """Where the outcomes are written of the tests whose plans are at a location."""
    return f"{location}.outcomes"
