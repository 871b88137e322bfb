"""The five tables of the demo against Flink's materialized tables of the same queries, in full mode, in a catalog of Paimon.

Ours is what people type: five times ``dynamic-tables refresh`` on the server of ``dynamic-tables spark start``. The rival is
``ALTER MATERIALIZED TABLE … REFRESH`` of the same five on a SQL gateway and a cluster that run, until their jobs have ended.
Both have the same data and two cores; Flink's is copied into Paimon first, because a materialized table there reads no other
files. Then the same with nothing changed, when ours are refreshes of the schedule. ``BENCH_SCALE`` and ``BENCH_ROUNDS`` change
how much. Needs Maven.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from measure import compare, interleave
from tpch import write_tpch

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.runners.local.folder import Options, ServerFolder
from airflow_dynamic_tables.runners.local.server import start, stop
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.support.flink_gateway import FlinkGateway, running_flink_gateway

ROOT = Path(__file__).resolve().parents[1]
SCALE = float(os.environ.get("BENCH_SCALE", "0.1"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
BIN = Path(sys.executable).parent
DAY = "PARTITIONED BY (ds) WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd')"
MONTH = "PARTITIONED BY (`month`) WITH ('partition.fields.month.date-formatter' = 'yyyy-MM')"
TABLES = {
    "crm.customer_totals": (
        "",
        """SELECT c.c_custkey AS customer, c.c_mktsegment AS segment, count(o.o_orderkey) AS orders,
                  coalesce(sum(o.o_totalprice), 0) AS spent
           FROM tpch.customer c LEFT JOIN tpch.orders o ON o.o_custkey = c.c_custkey
           GROUP BY c.c_custkey, c.c_mktsegment""",
    ),
    "crm.best_customers": (
        "",
        """SELECT segment, `rank`, customer, orders, spent
           FROM (SELECT *, row_number() OVER (PARTITION BY segment ORDER BY spent DESC) AS `rank` FROM crm.customer_totals)
           WHERE `rank` <= 10""",
    ),
    "crm.late_shipments": (
        DAY,
        """SELECT ds, l_shipmode AS `mode`, count(*) AS shipped, count(*) FILTER (WHERE l_receiptdate > l_commitdate) AS late,
                  max(timestampdiff(DAY, l_commitdate, l_receiptdate)) AS worst_days
           FROM tpch.lineitem
           GROUP BY ds, l_shipmode""",
    ),
    "sales.daily_revenue": (
        DAY,
        """SELECT l.ds, n.n_name AS nation, count(DISTINCT o.o_orderkey) AS orders,
                  sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue
           FROM tpch.lineitem l
           JOIN tpch.orders o ON o.o_orderkey = l.l_orderkey
           JOIN tpch.customer c ON c.c_custkey = o.o_custkey
           JOIN tpch.nation n ON n.n_nationkey = c.c_nationkey
           GROUP BY l.ds, n.n_name""",
    ),
    "sales.monthly_revenue": (
        MONTH,
        """SELECT substr(ds, 1, 7) AS `month`, nation, sum(orders) AS orders, sum(revenue) AS revenue
           FROM sales.daily_revenue
           GROUP BY substr(ds, 1, 7), nation""",
    ),
}
"""In Flink's SQL; in Spark's they are those of ``dags/definitions``."""

TYPES = {"int64": "BIGINT", "int32": "INT", "date32[day]": "DATE", "decimal128(15, 2)": "DECIMAL(15, 2)", "string": "STRING"}


def main() -> None:
    """Measure both in turn, compare their rows, print."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _write_data(home / ".demo" / "tpch")
        shutil.copytree(ROOT / "dags", home / "dags")
        (home / "flink").mkdir()
        with running_flink_gateway(home / "flink", parallelism=2) as flink, _warm_server(home) as server:
            _declare(flink, home / ".demo" / "tpch")
            _theirs(flink), _ours(home, server, "--full-refresh")  # the first refreshes load what all others find there
            _check_same_rows(flink, home)
            full = interleave(ROUNDS, ours=lambda: _ours(home, server, "--full-refresh"), flink=lambda: _theirs(flink))
            idle = interleave(ROUNDS, ours=lambda: _ours(home, server, "--scheduled"), flink=lambda: _theirs(flink))
    compare("five full refreshes", full["ours"], full["flink"], "Flink's materialized tables")
    compare("five refreshes with nothing changed", idle["ours"], idle["flink"], "Flink's materialized tables")


def _write_data(folder: Path) -> None:
    """Write TPC-H data, decimal numbers as integers: Flink reads no other ones of a dictionary."""
    folder.parent.mkdir()
    write_tpch(folder, BIN / "tpchgen-cli", SCALE, datetime.now(UTC).date() - timedelta(days=1))
    for file in folder.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        texts = [pa.string() if pa.types.is_string_view(field.type) else field.type for field in table.schema]
        fields = [pa.field(field.name, kind) for field, kind in zip(table.schema, texts, strict=True)]
        pq.write_table(table.cast(pa.schema(fields)), file, store_decimal_as_integer=True)


@contextmanager
def _warm_server(home: Path) -> Iterator[dict[str, str]]:
    """A server while it is used; gives the environment by which a command finds it."""
    folder = ServerFolder.of(f"sqlite:///{home}/state.db")
    server, _ = start(folder, Options("local[2]", "1g"))
    try:
        yield {"SPARK_REMOTE": f"{server.address}/;token={server.token}"}
    finally:
        stop(folder)


def _ours(home: Path, server: dict[str, str], how: str) -> float:
    """Seconds of five commands, one after the other."""
    environ = {**os.environ, "AIRFLOW_HOME": str(home), "DYNAMIC_TABLES_DATABASE_URL": f"sqlite:///{home}/state.db", **server}
    definitions = ["--definitions", str(home / "dags" / "definitions"), "--catalogs", str(home / "dags" / "catalogs.yaml")]
    started = time.perf_counter()
    for name in TABLES:
        command = [str(BIN / "dynamic-tables"), "refresh", name, how, *definitions]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode or (how == "--scheduled" and "Skipped: " not in done.stderr):
            raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - started


def _declare(flink: FlinkGateway, data: Path) -> None:
    for database in ("tpch", "crm", "sales"):
        flink.sql(f"CREATE DATABASE {database}")
    for folder in sorted(data.iterdir()):
        first = next(folder.rglob("*.parquet"))
        columns = ", ".join(f"{field.name} {TYPES[str(field.type)]}" for field in pq.read_schema(first))
        key = ", ds STRING) PARTITIONED BY (ds)" if first.parent.name.startswith("ds=") else ")"
        connector = f"'connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet'"
        flink.sql(f"CREATE TABLE default_catalog.default_database.{folder.name} ({columns}{key} WITH ({connector})")
        keys = "PARTITIONED BY (ds)" if "PARTITIONED" in key else ""
        flink.sql(f"CREATE TABLE tpch.{folder.name} {keys} AS SELECT * FROM default_catalog.default_database.{folder.name}")
    for name, (keys, query) in TABLES.items():
        flink.sql(f"CREATE MATERIALIZED TABLE {name} {keys} FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL AS {query}")


def _theirs(flink: FlinkGateway) -> float:
    """Seconds of five refreshes, one after the other."""
    started = time.perf_counter()
    for name in TABLES:
        if (state := flink.refresh(name)) != "FINISHED":
            raise SystemExit(f"Flink's refresh of {name} is {state}")
    return time.perf_counter() - started


def _check_same_rows(flink: FlinkGateway, home: Path) -> None:
    settings = WorkspaceSettings(f"sqlite:///{home}/state.db", f"file://{home}/warehouse", home / "dags" / "catalogs.yaml")
    with open_workspace(settings) as workspace:
        for name in TABLES:
            database, _, table = name.partition(".")
            ours = workspace.existing_table(TableIdentifier("lake", database, table)).sample(10**9)
            theirs = flink.sql(f"SELECT * FROM {name}")
            if len(ours) != len(theirs):
                raise SystemExit(f"{name} has {len(ours)} rows here and {len(theirs)} in Flink")


if __name__ == "__main__":
    main()
