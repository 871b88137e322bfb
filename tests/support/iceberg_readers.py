"""Engines that read an Iceberg table: Trino by its catalog, DuckDB and Polars by its metadata."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import polars
from pyiceberg.catalog import Catalog

from tests.support.downloads import unpacked
from tests.support.iceberg_spark import jdbc_properties
from tests.support.trino import Trino

_DUCKDB = """
import json, sys

sys.path[:0] = sys.argv[1:2]
import duckdb

connection = duckdb.connect()
for extension in sys.argv[3:]:
    connection.load_extension(extension)
connection.execute("SET TimeZone = 'UTC'")
result = connection.execute(sys.argv[2])
names = [column[0] for column in result.description]
rows = [dict(zip(names, row)) for row in result.fetchall()]
print(json.dumps(rows, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)))
"""


@dataclass(frozen=True)
class Reader(ABC):
    """An engine that reads the tables of one database of a catalog; values that JSON does not know come as text."""

    catalog: Catalog
    database: str

    @abstractmethod
    def rows(self, table: str, rest: str = "", snapshot: int | None = None) -> list[dict[str, Any]]:
        """Return the rows of a table, without order.

        :param rest: the rest of the query after the table, such as its condition.
        """

    def metadata(self, table: str) -> str:
        return self.catalog.load_table((self.database, table)).metadata_location


@dataclass(frozen=True)
class TrinoReader(Reader):
    trino: Trino

    def rows(self, table: str, rest: str = "", snapshot: int | None = None) -> list[dict[str, Any]]:
        version = f"FOR VERSION AS OF {snapshot}" if snapshot else ""
        return self.trino.sql(f"SELECT * FROM {self.catalog.name}.{self.database}.{table} {version} {rest}")

    def connect(self) -> None:
        """Open the catalog, which lies in a database."""
        properties = self.catalog.properties
        self.trino.connect(jdbc_properties(properties["uri"], properties["warehouse"]), self.catalog.name)


class DuckDbReader(Reader):
    def rows(self, table: str, rest: str = "", snapshot: int | None = None) -> list[dict[str, Any]]:
        version = f", snapshot_from_id = {snapshot}" if snapshot else ""
        statement = f"SELECT * FROM iceberg_scan('{self.metadata(table)}'{version}) {rest}"
        extensions = [str(next(unpacked(f"duckdb-{name}").rglob("*.duckdb_extension"))) for name in ("avro", "iceberg")]
        command = [sys.executable, "-I", "-c", _DUCKDB, str(unpacked("duckdb")), statement, *extensions]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows


class PolarsReader(Reader):
    def rows(self, table: str, rest: str = "", snapshot: int | None = None) -> list[dict[str, Any]]:
        scanned = polars.scan_iceberg(self.metadata(table), snapshot_id=snapshot)
        rows = scanned.sql(f"SELECT * FROM self {rest}").collect().to_dicts()
        read: list[dict[str, Any]] = json.loads(json.dumps(rows, default=_text))
        return read


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
