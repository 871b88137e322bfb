"""What is sound before it is spoiled, and what it is spoiled with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import (
    FunctionBinding,
    RefreshPlan,
    RefreshResult,
    SourceBinding,
    SourcePart,
    StagedFile,
)
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.schema import Column

DAY = datetime(2024, 1, 31, 6, tzinfo=UTC)

_BROKEN = Path(__file__).parents[2] / "definitions" / "broken"

_DEFINITIONS = """\
defaults: &defaults
  catalog: lake
  database: sales
  timezone: Europe/Berlin
  retries: 2
  spark: {conn_id: spark_default, conf: {spark.executor.memory: 4g}, env_vars: {A: "1"}}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders, partitioned_by: [ds]}
  - {name: crm.customers, format: csv, path: ../customers, options: {header: true, sep: ;}, schema: "id int, country string"}
  - {name: raw.log, format: iceberg}
views:
  - name: cleaned
    query: SELECT o.*, c.country FROM raw.orders o JOIN crm.customers c ON o.customer_id = c.id
dynamic_tables:
  - name: daily_revenue
    comment: Revenue per day and country
    freshness: 1 day
    refresh_mode: auto
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    format: iceberg
    columns: {revenue: "in euros"}
    tags: [finance]
    start_date: 2024-01-01
    retry_delay: 5 minutes
    version_max_age: 7 days
    expectations:
      - {not_null: [ds, country]}
      - {accepted_values: {country: [NO, SE]}, action: drop}
      - {predicate: revenue >= 0, action: warn, name: positive}
      - {row_count: {min: 1, max_decrease: 50%}}
    query: |
      SELECT ds, country, sum(amount) AS revenue
      FROM cleaned GROUP BY ds, country
  - name: hourly
    freshness: "INTERVAL '1' HOUR"
    partitioned_by: [ds, hh]
    options:
      partition.fields.ds.date-formatter: yyyy-MM-dd
      partition.fields.hh.date-formatter: HH
    query: "SELECT ds, hh, count(*) AS n FROM raw.log\\n GROUP BY ds, hh"
  - name: folded
    schedule: "0 6 * * 1-5"
    query: >
      SELECT ds, max(revenue) AS best
      FROM daily_revenue WHERE country = 'DE' GROUP BY ds
"""

_CATALOGS = """\
catalogs:
  - name: lake
    type: sql
    is-default: true
    default-database: sales
    connection-params: {url: "sqlite:///../state/lake.db", warehouse: ../state/warehouse}
  - name: hive1
    catalog:
      type: hive
      default-db: sales
      connection-params:
        hive.metastore.uris: "thrift://127.0.0.1:1,thrift://127.0.0.1:2"
  - {name: crm, type: jdbc, conn-id: crm_postgres}
  - {name: scratch, type: memory}
"""

SCRIPTS = (
    """\
CREATE VIEW lake.sales.cleaned COMMENT 'no returns' AS SELECT * FROM VALUES ('2024-01-01', 1) AS t(ds, amount);
-- every day; indeed
CREATE OR ALTER DYNAMIC TABLE lake.sales.daily (ds COMMENT 'day', revenue COMMENT 'it''s in euros')
COMMENT 'Revenue \\'of\\' a day' PARTITIONED BY (ds)
WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd', 'timezone' = 'Europe/Berlin', 'tags' = '[a, "b"]',
  'pool' = '${POOL:-p}', 'spark' = '{conf: {spark.executor.memory: 4g}}',
  'expectations' = '[{not_null: [ds]}, {predicate: revenue >= 0, action: warn}]')
FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL
AS /* all; of it */ SELECT ds, sum(amount) AS revenue FROM lake.sales.cleaned GROUP BY ds;
""",
    """\
CREATE MATERIALIZED TABLE IF NOT EXISTS `a;b`.`c``d`.e WITH ('options' = '{x: y}', 'dag' = 'shared') FRESHNESS = '2 hours' AS
WITH t AS (SELECT ';' AS x, r'\\' AS y, "a\\"b" AS z) SELECT x, y, z FROM t -- the end
;CREATE DYNAMIC TABLE a.b.c FRESHNESS = '1 hour' AS VALUES (1, 'a');
""",
)
"""Files of statements."""

STATEMENTS = (
    "SELECT o.ds, c.country, sum(o.amount) AS r FROM raw.orders o JOIN crm.customers c ON o.customer_id = c.id GROUP BY 1, 2",
    "WITH a AS (SELECT * FROM raw.orders), b AS (SELECT ds, amount FROM a) SELECT ds, raw.orders.amount AS x FROM b, raw.orders",
    "SELECT /*+ BROADCAST(o), REPARTITION(3) */ a.b.c AS x, `a ``n` AS y FROM lake.raw.orders o -- why\nWHERE a IN ('x', \"y\")",
    "SELECT * FROM raw.orders WHERE EXISTS (SELECT 1 FROM crm.customers WHERE crm.customers.id = raw.orders.customer_id)",
    "FROM raw.orders |> WHERE ds > '2024-01-01' |> AGGREGATE sum(amount) AS s GROUP BY ds",
    "SELECT x, explode(map('a', 1)) AS (k, v) FROM raw.orders LATERAL VIEW posexplode(items) t AS p, i WHERE x <=> NULL",
    "SELECT CASE WHEN a > 1 THEN 'a' ELSE 'b' END AS k, v:a.b::int, INTERVAL '1' DAY + ts FROM raw.orders TABLESAMPLE (5 ROWS)",
    "SELECT ds, rank() OVER (PARTITION BY ds ORDER BY amount DESC ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM raw.orders",
    "SELECT ds FROM raw.orders UNION ALL (SELECT ds FROM raw.log EXCEPT SELECT '2024' AS ds) ORDER BY ds LIMIT 5",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT * FROM raw.orders PIVOT (sum(amount) FOR country IN ('DE' AS de, 'FR' AS fr))",
    "SELECT a FROM VALUES (1) AS t(a) JOIN range(10) r ON r.id = t.a /* /* nested */ */",
    "SELECT json.a[0].b['c'], transform(xs, x -> x + 1), my_db.my_fn(1) FROM raw.log;",
)

CONFS: tuple[Any, ...] = (
    {"schedule_time": "2024-01-31 06:00:00"},
    {"schedule_time": "2024-01-31T06:00:00+01:00", "partition": "ds=2024-01-30/hh=03, ds=2024-01-30/hh=04"},
    {"full_refresh": True},
    {"partition": "ds=2024-01-30/hh=7", "full_refresh": False},
    {},
)


def definitions() -> tuple[str, ...]:
    broken = [path.read_bytes().decode("utf-8", errors="replace") for path in sorted(_BROKEN.glob("*.yaml"))]
    return (_DEFINITIONS,) * len(broken) + tuple(broken)


def catalogs() -> tuple[str, ...]:
    return (_CATALOGS,)


def plans() -> tuple[str, ...]:
    sources = (
        SourceBinding("lake.raw.orders", "v1", "parquet", "7", files=("/d/a.parquet",), partition_keys=("ds",), schema="a int"),
        SourceBinding("lake.raw.log", "v2", "iceberg", "12", table="lake.raw.log"),
        SourceBinding("hive.raw.x", "v3", "orc", "3", parts=(SourcePart(("/x/f.orc",), "/x", {"ds": "2024"}),)),
    )
    plan = RefreshPlan(
        "t1",
        "lake.sales.daily",
        DAY,
        RefreshAction.PARTITIONS,
        "scheduled",
        "SELECT 1",
        "SELECT * FROM v1",
        "/warehouse/stage/t1",
        "parquet",
        True,
        partition_keys=("ds",),
        partitions=PartitionSet.of([{"ds": "2024-01-30"}]),
        sources=sources,
        functions=(FunctionBinding("lake.sales.f", "f1", "python", "module:f", "int", py_files=("/f.zip",)),),
        comments={"a": "b"},
        expectations=(Expectation("positive", Action.DROP, "a > 0"),),
        data_timestamp=DAY,
        base="12",
    )
    return (plan.to_json(),)


def results() -> tuple[str, ...]:
    result = RefreshResult(
        "t1",
        "app-1",
        3,
        (StagedFile("/warehouse/stage/t1/data/ds=2024-01-30/a.parquet", 100),),
        (Column("a", "int"), Column("ds", "string")),
        partitions=({"ds": "2024-01-30"},),
        seconds={"write": 1.5},
        expectations=(ExpectationResult("positive", Action.DROP, 2),),
    )
    return (result.to_json(),)
