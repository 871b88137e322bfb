"""The kinds of tables that writes are struck at: their formats and catalogs, and the steps of their stores."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_dynamic_tables.core.formats import FORMATS
from tests.support.faults.writes import Create, Hold, Replace, Write


@dataclass(frozen=True, slots=True)
class Place:
    """A parameter of the fixture ``site``, and the steps of its commit; see :mod:`tests.support.faults.steps`.

    Where a table is created under a temporary name, ``naming`` are the steps of naming it. From the step ``shown_at`` on it can
    be read by its name, and from ``decided_at`` on it cannot be given up any more.
    """

    site: str
    format: str
    commit: tuple[str, ...]
    naming: tuple[str, ...] = ()
    marks: tuple[pytest.MarkDecorator, ...] = ()
    decided_at: str = "published"
    shown_at: str = "published"
    repeats: bool = False
    """Whether another place has the same format; only the creation of tables is a matter of the catalog."""

    def steps(self, write: Write) -> tuple[str, ...]:
        if isinstance(write, Hold):
            return (*write.steps, "held")
        made: tuple[str, ...] = ()
        if self.format == "jdbc" and write.makes_table:
            made = ("register", "rename") if self.is_created(write) else ("rename",)
        naming = ("naming", *self.naming) if self.is_drafted(write) else ()
        return (*write.steps, "publishing", *made, *self.commit, *naming, "published", "completed")

    def is_created(self, write: Write) -> bool:
        """Return whether a write creates a table by a query."""
        return isinstance(write, Create) and not isinstance(write, Replace)

    def is_drafted(self, write: Write) -> bool:
        """Return whether a write creates a table under a temporary name."""
        return self.is_created(write) and self.format != "jdbc"

    def has_landed(self, write: Write, step: str) -> bool:
        """Return whether readers see the new version of a write that was killed at a step."""
        return self._is_past(write, step, self.shown_at)

    def is_decided(self, write: Write, step: str) -> bool:
        """Return whether the next process completes a write that was killed at a step."""
        return self._is_past(write, step, self.decided_at)

    def _is_past(self, write: Write, step: str, named: str) -> bool:
        steps = self.steps(write)
        ends = "held" if isinstance(write, Hold) else named if self.is_drafted(write) else "landed"
        return steps.index(step) >= steps.index(ends if ends in steps else "published")


_SQL = ("swap", "swapped", "landed")
_NAMED_BY_SQL = ("naming-swap", "naming-swapped")
_HIVE = ("announced", "swap", "landed")
_METASTORE = pytest.mark.metastore

PLACES = [
    Place("sqlite", "iceberg", _SQL, _NAMED_BY_SQL),
    Place("delta", "delta", (), _NAMED_BY_SQL),
    Place("jdbc", "jdbc", ("swap", "swapped"), marks=(pytest.mark.postgres,)),
    Place("hive/parquet", "parquet", _HIVE, marks=(_METASTORE,)),
    Place("hive/orc", "orc", _HIVE, marks=(_METASTORE,), repeats=True),
    Place("hive/delta", "delta", (), marks=(_METASTORE,), repeats=True),
    Place("postgres", "iceberg", _SQL, _NAMED_BY_SQL, marks=(pytest.mark.postgres, pytest.mark.large), repeats=True),
    Place("rest/iceberg", "iceberg", ("update",), ("naming-rename",), repeats=True),
    Place(
        "glue/iceberg",
        "iceberg",
        ("update",),
        ("naming-update", "naming-create", "naming-delete"),
        decided_at="naming-create",
        shown_at="naming-delete",
        repeats=True,
    ),
]


def fitting(write: Write) -> list[Place]:
    return [place for place in PLACES if write.fits(FORMATS[place.format])]
