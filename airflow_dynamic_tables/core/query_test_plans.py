"""Input and output of the job that runs unit tests, both as JSON.

The job runs from a zip with pyspark only, so this module depends on the standard library only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Column

MOST_ROWS = 10_000
"""Maximum number of rows that a test's query may return: rows are compared one by one, and people read the differences."""


@dataclass(frozen=True, slots=True)
class GivenTable:
    """Test rows in place of one table that the query reads: the rows of ``query``, which itself reads no tables.

    ``columns`` have known types: rows get NULL for missing ones, and their values must fit. They are followed by columns of
    unknown types: those named in ``others``, or any when it is ``None``. Rows with equal values in the columns of
    ``deduplicate``, if any, are deduplicated.
    """

    identifier: str
    view: str
    query: str
    columns: tuple[Column, ...] = ()
    others: tuple[str, ...] | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryTestPlan:
    """One test: the simulated refresh, which writes nothing, and optionally a query for the expected rows.

    Sources without given rows are read at their planned version. With a ``limit``, the first rows are returned instead of an
    error for more than :data:`MOST_ROWS`, and columns may have duplicate names.
    """

    refresh: RefreshPlan
    given: tuple[GivenTable, ...]
    expected: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReturnedRows:
    """The rows of a query: each is a JSON list of values, in which a primitive value is a string."""

    columns: tuple[Column, ...]
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryTestOutcome:
    """The outcome of one test: the rows, or the error."""

    seconds: float
    returned: ReturnedRows | None = None
    expected: ReturnedRows | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class QueryTestPlans:
    """All tests of one job."""

    plans: tuple[QueryTestPlan, ...]

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> QueryTestPlans:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text has another form.
        """
        return from_plain(cls, json.loads(text))


@dataclass(frozen=True, slots=True)
class QueryTestOutcomes:
    """The outcomes of all tests, in order."""

    outcomes: tuple[QueryTestOutcome, ...]

    def to_json(self) -> str:
        """Serialize; the inverse of :meth:`from_json`."""
        return json.dumps(to_plain(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> QueryTestOutcomes:
        """Parse the output of :meth:`to_json`.

        :raises ValueError: when the text has another form.
        """
        return from_plain(cls, json.loads(text))


def outcomes_location(location: str) -> str:
    """The location of the outcomes of the test plans at a location."""
    return f"{location}.outcomes"
