"""One place in which tables are made of queries: a catalog, a format, and what is seen of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_dynamic_tables.catalog.values import CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.services.ctas.running import Submit, create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.pyarrow_job import Days, write_days

QUERY = "SELECT '1' AS ds, 1 AS n"


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes one table, with a job that writes by PyArrow; ``data`` is the folder below which all files of tables lie."""

    workspace: Workspace
    clock: Clock
    table: TableIdentifier
    format: str
    data: Path

    def create(
        self,
        token: str,
        days: Days,
        purpose: Purpose = Purpose.CREATE,
        before: Callable[[RefreshPlan], None] = lambda _: None,
        after: Callable[[RefreshPlan], None] = lambda _: None,
        keys: tuple[str, ...] = ("ds",),
        more: tuple[str, ...] = (),
    ) -> Created:
        """Make the table of these rows; something may happen before the job and after it."""

        def job(plan: RefreshPlan) -> None:
            before(plan)
            write_days(plan, days, more=more)
            after(plan)

        return self.create_of(token, self.table, QUERY, job, purpose, keys)

    def create_of(
        self,
        token: str,
        table: TableIdentifier,
        query: str,
        job: Submit,
        purpose: Purpose = Purpose.CREATE,
        keys: tuple[str, ...] = ("ds",),
    ) -> Created:
        scope = (table.catalog, table.database)
        wanted = WantedTable(table, query, scope, QueryPlace(Path("query"), query), purpose, self.format, keys, "how much")
        return create_table_as(self.workspace, Definitions(), wanted, (token, f"owner of {token}"), job)

    def rows(self, name: str = "figures") -> dict[str, list[int]]:
        table = TableIdentifier(self.table.catalog, self.table.database, name)
        found: dict[str, list[int]] = {}
        for row in sample(self.workspace, table, 100):
            found.setdefault(row["ds"], []).append(row["n"])
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}

    def names(self) -> list[str]:
        """All tables that another engine sees."""
        catalog = self.workspace.catalog(self.table.catalog)
        return catalog.list_tables(self.table.database) if catalog.database_exists(self.table.database) else []

    def files(self) -> list[Path]:
        return [path for kind in ("parquet", "orc") for path in self.data.rglob(f"*.{kind}")]

    def exists(self) -> bool:
        return self.workspace.catalog(self.table.catalog).table_exists(self.table.path)

    def make_theirs(self) -> CatalogTable:
        """Make a table of the name as others do."""
        catalog = self.workspace.catalog(self.table.catalog)
        theirs = CatalogTable((Column("theirs", "bigint"),), format="iceberg" if self.format == "iceberg" else "parquet")
        catalog.create_table(self.table.path, theirs)
        return theirs
