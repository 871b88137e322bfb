"""Iceberg tables as Spark with Iceberg's own library changes them."""

from __future__ import annotations

from tests.support.faults.model.lakes.iceberg import IcebergLake
from tests.support.faults.model.state import Row
from tests.support.faults.victims import REVENUE, Site
from tests.support.iceberg_spark import IcebergSpark, jdbc_properties


class SparkIcebergLake(IcebergLake):
    """The table in a session of Spark; rows are deleted beside the files."""

    def __init__(self, site: Site, spark: IcebergSpark) -> None:
        super().__init__(site)
        self._spark = spark
        spark.connect(jdbc_properties(site.database_url, site.warehouse), REVENUE.catalog)

    def left_over(self, name: str) -> list[str]:
        """See :meth:`IcebergLake.left_over`; Hadoop writes a checksum beside each local file."""
        return [path for path in super().left_over(name) if not path.endswith(".crc")]

    def append(self, name: str, day: str, row: Row) -> None:
        number, width = row
        values = ", ".join([f"'{day}'", *[str(number)] * (1 + width)])
        self._sql(name, f"INSERT INTO {{t}} VALUES ({values})")

    def delete(self, name: str, day: str) -> None:
        """Delete the rows of a day one by one, so that no file goes."""
        self._sql(name, "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        self._sql(name, f"DELETE FROM {{t}} WHERE ds = '{day}' AND n % 2 = 0")
        self._sql(name, f"DELETE FROM {{t}} WHERE ds = '{day}'")

    def compact(self, name: str) -> None:
        table = f"table => '{REVENUE.database}.{name}'"
        self._sql(name, f"CALL {REVENUE.catalog}.system.rewrite_data_files({table}, options => map('rewrite-all', 'true'))")
        self._sql(name, f"CALL {REVENUE.catalog}.system.rewrite_manifests({table})")

    def go_back(self, name: str, snapshot: str) -> None:
        self._sql(name, f"CALL {REVENUE.catalog}.system.set_current_snapshot('{REVENUE.database}.{name}', {snapshot})")

    def _sql(self, name: str, statement: str) -> None:
        self._spark.sql(statement.format(t=f"{REVENUE.catalog}.{REVENUE.database}.{name}"))
