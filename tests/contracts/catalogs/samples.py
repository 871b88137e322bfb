"""What the contract of all catalogs is tested with: values, names, and what a type of catalog may do differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_dynamic_tables.catalog.base import ReadableCatalog, ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDynamicTable,
    CatalogTable,
    CatalogView,
    JobState,
    RefreshHandler,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schedule import RefreshMode
from airflow_dynamic_tables.core.schema import Column

PATH = ObjectPath("sales", "daily_revenue")
TABLE = CatalogTable(
    columns=(Column("id", "bigint", nullable=False), Column("price", "decimal(10,2)", comment="in €")),
    comment="Orders as they came in",
    partition_keys=("ds", "hh"),
    format="parquet",
    location="file:///data/orders",
    options={"mergeSchema": "true"},
    properties={"owner": "sales"},
)
DYNAMIC = CatalogDynamicTable(
    columns=(Column("ds", "string"), Column("revenue", "decimal(38,2)")),
    original_query="SELECT ds, sum(amount) AS revenue FROM orders GROUP BY ds",
    expanded_query="SELECT `o`.`ds`, sum(`o`.`amount`) AS `revenue` FROM `lake`.`sales`.`orders` AS `o` GROUP BY `o`.`ds`",
    freshness="1 day",
    declared_refresh_mode=RefreshMode.AUTO,
    refresh_handler=RefreshHandler(
        RefreshMode.FULL, JobState.RUNNING, {"schedulerType": "airflow", "endpoint": "", "workflowId": "dynamic_table__x"}
    ),
    comment="Umsatz pro Tag",
    partition_keys=("ds",),
    options={"partition.fields.ds.date-formatter": "yyyy-MM-dd"},
    properties={"owner": "sales"},
    definition={"version": 1, "name": "lake.sales.daily_revenue", "tags": ["é"], "spark": {"conf": {"a.b": "1"}}, "retries": 2},
)
VIEW = CatalogView("SELECT 1 AS one", "SELECT 1 AS `one`", (Column("one", "int", nullable=False),), "One", {"a": "b"})
KINDS: dict[str, AnyTable] = {"table": TABLE, "dynamic table": DYNAMIC, "view": VIEW}
NAMES = ("Orders", "orders", "a.b", 'say "hi"', "it's", "`tick`", "Umsätze", "売上", "with space", "100%_x", "select", "x" * 255)


def unchanged(table: AnyTable) -> AnyTable:
    """The same value."""
    return table


@dataclass(frozen=True)
class Limits:
    """What a type of catalog does differently; everything else is asked of all in the same way.

    ``names`` are names that it can hold, ``kept`` is a table as it comes back. ``tables`` and ``partitions`` are how many a
    test of much makes: a server that takes long to make them has a test of its own, which is ``long``.

    Tests that are not every catalog's have the mark ``needs``. One that lacks ``details`` keeps no views, functions and options,
    nor registered partitions; with ``several writers``, another process sees the same catalog.
    """

    names: tuple[str, ...] = NAMES
    case_sensitive: bool = True
    tables: int = 1_000
    partitions: int = 10_000
    kept: Callable[[AnyTable], AnyTable] = unchanged


@dataclass(frozen=True)
class Contract:
    """One type of catalog under test: makes clients, not opened yet, of one catalog that is empty at first."""

    client: Callable[[], ReadableWritableCatalog]
    limits: Limits = Limits()


@dataclass(frozen=True)
class Filled:
    """A catalog to be read: it has a database with exactly these tables, of which the first has these columns."""

    catalog: ReadableCatalog
    database: str
    tables: tuple[str, ...]
    columns: tuple[str, ...]
