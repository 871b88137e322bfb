"""A table of three numbers in any catalog and format, to be renamed and dropped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.services.lifecycle.registration import rename
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

MARCH = datetime(2024, 3, 1, tzinfo=UTC)


@dataclass
class NamedTable:
    workspace: Workspace
    folder: Path
    name: TableIdentifier
    format: str
    atomicity: str = "staged"

    def definitions(self) -> Definitions:
        path = self.folder / "tables.yaml"
        path.write_text(
            f"dynamic_tables: [{{name: {self.name}, freshness: 1 day, format: {self.format}, atomicity: {self.atomicity}, "
            "partitioned_by: [ds], options: {partition.fields.ds.date-formatter: yyyy-MM-dd}, "
            "query: \"SELECT '2024-01-01' AS ds, 1 AS n\"}]"
        )
        return load_definitions(path)

    def refresh(self, *numbers: int, day: int = 1) -> Version:
        self.workspace.catalog(self.name.catalog).create_database(self.name.database, CatalogDatabase(), ignore_if_exists=True)
        token = str(uuid4())
        time = datetime(2024, 1, day + 1, tzinfo=UTC)
        request = RefreshRequest(self.definitions().tables[self.name], {}, time, token, token)

        def write(plan: RefreshPlan) -> None:
            write_days(plan, {f"2024-01-{day:02}": numbers})

        version = run(self.workspace, request, write)
        assert isinstance(version, Version)
        return version

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in sample(self.workspace, self.name, 100))

    def renamed(self, name: str) -> NamedTable:
        new = TableIdentifier(self.name.catalog, self.name.database, name)
        rename(self.workspace, self.name, new)
        return NamedTable(self.workspace, self.folder, new, self.format, self.atomicity)


def keeps_data_and_history(table: NamedTable) -> None:
    table.refresh(1, 2)
    table.refresh(3, day=2)
    ledger = table.workspace.ledger
    told = [refresh.token for refresh in ledger.list_refreshes(table.name)]
    other = table.renamed("other")
    catalog = table.workspace.catalog(table.name.catalog)
    assert not catalog.table_exists(table.name.path)
    assert other.numbers() == [1, 2, 3]
    assert [refresh.token for refresh in ledger.list_refreshes(other.name)] == told
    assert ledger.list_refreshes(table.name) == []
    assert ledger.list_stages() == []
    assert other.refresh(4, day=2).number == 3, "the versions go on"
    assert other.numbers() == [1, 2, 4]
    table.refresh(7)
    assert (table.numbers(), other.numbers()) == ([7], [1, 2, 4]), "another table of the former name shares nothing"
