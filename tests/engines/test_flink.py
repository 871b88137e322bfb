"""Flink with Iceberg's own library reads our tables and writes into them, and its tables are our sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from airflow_dynamic_tables.core.partitions import WHOLE_TABLE
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.refresh.steps import Step
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.maintenance.sweeping import expire
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from tests.support import jobs
from tests.support.downloads import jars, spark_home
from tests.support.flink import Flink, running_flink
from tests.support.iceberg_shared import CATALOGS, SharedTable, shared_table
from tests.support.spark import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.large, pytest.mark.spark, pytest.mark.timeout(600)]

TYPES: dict[str, tuple[str, Any]] = {
    "i": ("1", 1),
    "l": ("1099511627776L", 2**40),
    "f": ("1.5F", 1.5),
    "d": ("2.5D", 2.5),
    "de": ("CAST(12345.67891 AS DECIMAL(20, 5))", "12345.67891"),
    "s": ("'é'", "é"),
    "b": ("X'00ff'", b"\x00\xff"),
    "bo": ("true", True),
    "dt": ("DATE '1969-12-31'", "1969-12-31"),
    "ts": ("TIMESTAMP '2024-03-01 12:00:00.123456Z'", "2024-03-01T12:00:00.123456Z"),
    "tn": ("TIMESTAMP_NTZ '2024-03-01 12:00:00.123456'", "2024-03-01T12:00:00.123456"),
    "st": ("named_struct('a', 1, 'b', array(named_struct('c', 'x'), null))", "+I[1, [+I[x], null]]"),
    "m": ("map('k', 1.25)", "{k=1.25}"),
}
"""By column: a value in Spark's SQL, and what Flink reads, nested values and times as text."""


@pytest.fixture(scope="module")
def flink(java: None) -> Iterator[Flink]:  # noqa: ARG001 - it must be there
    with running_flink() as session:
        yield session


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path, empty_state: Path, flink: Flink) -> Iterator[SharedTable]:
    """A table that was never refreshed, and Flink on its catalog, by default on the ``sql`` one."""
    with shared_table(getattr(request, "param", "sql"), tmp_path, empty_state, request, flink) as opened:
        yield opened


@pytest.fixture
def two_days(shared: SharedTable) -> SharedTable:
    shared.place.refresh(1, [11, 12])
    shared.place.refresh(2, [21])
    return shared


def table_of(shared: SharedTable) -> LakeTable:
    return shared.place.workspace.table(shared.place.table, "iceberg")


def of_name(shared: SharedTable, name: str) -> SharedTable:
    """Another table of the same database."""
    return replace(shared, place=replace(shared.place, table=replace(shared.place.table, table=name)))


def request_of(shared: SharedTable, query: str, more: str) -> RefreshRequest:
    """A refresh of a table of this query and more keys; it may read the table of Flink's."""
    table, file = shared.place.table, shared.place.folder / f"{shared.place.table.table}.yaml"
    file.write_text(
        f"defaults: {{catalog: {table.catalog}, database: {table.database}, skip_unchanged: false}}\n"
        "sources: [{name: upserted, format: iceberg}]\n"
        f'dynamic_tables: [{{name: {table.table}, freshness: 1 day, refresh_mode: full, {more}, query: "{query}"}}]\n'
    )
    found = load_definitions(file)
    return RefreshRequest(found.tables[table], found.sources, shared.place.clock.time, str(uuid4()), "test", full_refresh=True)


def compute(shared: SharedTable, spark: SparkSession, query: str, more: str = "comment: none") -> None:
    """Let Spark compute a table."""
    made = run(shared.place.workspace, request_of(shared, query, more), lambda plan: jobs.refresh(spark, plan))
    assert isinstance(made, Version)


@pytest.mark.parametrize("shared", CATALOGS, indirect=True)
def test_flink_reads_each_version(two_days: SharedTable) -> None:
    place = two_days.place
    assert two_days.theirs() == place.rows() == {1: [11, 12], 2: [21]}
    snapshot = table_of(two_days).read().snapshot
    place.by_hand(1, [13])
    assert two_days.theirs() == place.rows() == {1: [13], 2: [21]}
    assert two_days.sql("SELECT count(*) AS rows_of_it FROM {t}") == [{"rows_of_it": 2}]
    then = two_days.sql(f"SELECT n FROM {{t}} /*+ OPTIONS('snapshot-id' = '{snapshot}') */ ORDER BY n")
    assert [row["n"] for row in then] == [11, 12, 21]
    place.roll_back(1, "back")
    assert two_days.theirs() == place.rows() == {1: [11, 12]}


def test_flink_reads_every_type(shared: SharedTable, spark: SparkSession) -> None:
    kinds = of_name(shared, "kinds")
    values = ", ".join(f"{value} AS {name}" for name, (value, _) in TYPES.items())
    compute(kinds, spark, f"SELECT {values} UNION ALL SELECT {', '.join(['null'] * len(TYPES))}")
    rows = sorted(kinds.sql("SELECT * FROM {t}"), key=lambda row: row["i"] is None)
    assert [str(rows[0].pop("de"))] == [TYPES["de"][1]]
    assert rows[0] == {name: value for name, (_, value) in TYPES.items() if name != "de"}
    assert rows[1] == dict.fromkeys(TYPES)


def test_flink_reads_one_partition_of_keys_of_each_type(shared: SharedTable, spark: SparkSession) -> None:
    """The files of the other partitions are not there, which Flink does not notice."""
    keys = of_name(shared, "by_keys")
    compute(
        keys,
        spark,
        "SELECT id AS n, concat('a b/', id) AS s, CAST(id AS INT) AS i, id = 1 AS b, DATE '2024-03-01' + CAST(id AS INT) AS d "
        "FROM range(3)",
        "partitioned_by: [s, i, b, d]",
    )
    for file in keys.folder.rglob("*.parquet"):
        if "i=1" not in str(file) and "_partition_1=1" not in str(file):
            file.unlink()
    for condition in ("s = 'a b/1'", "i = 1", "d = DATE '2024-03-02'"):  # it prunes by no boolean
        assert keys.sql(f"SELECT n FROM {{t}} WHERE {condition}") == [{"n": 1}], condition
    with pytest.raises(Exception, match=r"does not exist|NotFound|FileNotFound"):
        keys.sql("SELECT n FROM {t} WHERE i = 2")


def test_flink_reads_what_other_queries_made_of_the_table(shared: SharedTable, spark: SparkSession) -> None:
    grown = of_name(shared, "grown")
    daily = "partitioned_by: [ds]"
    compute(grown, spark, "SELECT '1' AS ds, 1 AS n", daily)
    compute(grown, spark, "SELECT '1' AS ds, 1 AS n, 'x' AS appended", daily)
    assert grown.sql("SELECT * FROM {t}") == [{"ds": "1", "n": 1, "appended": "x"}]
    compute(grown, spark, "SELECT '1' AS ds, 99999999999 AS n, 'x' AS appended", daily)
    assert grown.sql("SELECT * FROM {t}") == [{"ds": "1", "n": 99999999999, "appended": "x"}]
    compute(grown, spark, "SELECT DATE '2024-03-01' AS day, 'y' AS n", "partitioned_by: [day]")
    assert grown.sql("SELECT * FROM {t}") == [{"day": "2024-03-01", "n": "y"}]
    assert table_of(grown).sample(10) == [{"day": date(2024, 3, 1), "n": "y"}]


WRITTEN = {
    "insert": ("INSERT INTO {t} VALUES ('2024-03-01', 13)", {1: [11, 12, 13], 2: [21]}),
    "a new partition": ("INSERT INTO {t} VALUES ('2024-03-09', 91)", {1: [11, 12], 2: [21], 9: [91]}),
    "insert overwrite": ("INSERT OVERWRITE {t} VALUES ('2024-03-01', 14)", {1: [14], 2: [21]}),
    "insert overwrite a partition": ("INSERT OVERWRITE {t} PARTITION (ds = '2024-03-01') SELECT 15", {1: [15], 2: [21]}),
    "properties": ("ALTER TABLE {t} SET ('write.format.default' = 'avro')", {1: [11, 12], 2: [21]}),
}


@pytest.mark.parametrize("when", ["before", "between stage and commit"])
@pytest.mark.parametrize("case", WRITTEN)
def test_what_flink_wrote_stays_where_the_next_refresh_replaces_nothing(two_days: SharedTable, case: str, when: str) -> None:
    place = two_days.place
    statement, expected = WRITTEN[case]
    if when == "before":
        two_days.sql(statement)
        assert two_days.theirs() == place.rows() == expected
    else:
        place.at(Step.COMMIT, "d3", lambda: _run(two_days, statement))
    assert place.refresh(3, [31], token="d3").number == 3
    assert two_days.theirs() == place.rows() == expected | {3: [31]}
    place.by_hand(1, [18])
    assert two_days.theirs() == place.rows() == expected | {1: [18], 3: [31]}


def _run(shared: SharedTable, statement: str) -> None:
    shared.sql(statement)


def upsert(shared: SharedTable, changes: str, *rows: tuple[str, int]) -> None:
    """Let Flink's sink for upserts write (``+``) and delete (``-``) rows; it deletes them by their values."""
    assert isinstance(shared.engine, Flink)
    table = shared.place.table
    shared.engine.upsert(table.catalog, (table.database, table.table), ("ds", "n"), list(zip(changes, rows, strict=True)))


@pytest.mark.parametrize("when", ["before", "between stage and commit"])
def test_rows_that_flink_deleted_by_their_values_never_come_back(two_days: SharedTable, when: str) -> None:
    """They are refused by name where they are to be read here, until refreshes have replaced all of them."""
    place = two_days.place

    def happens() -> None:
        upsert(two_days, "-+", ("2024-03-01", 11), ("2024-03-01", 13))

    if when == "before":
        happens()
    else:
        place.at(Step.COMMIT, "d3", happens)
    assert place.refresh(3, [31], token="d3").number == 3
    assert two_days.theirs() == {1: [12, 13], 2: [21], 3: [31]}
    with pytest.raises(UnsupportedError, match=r"deleted by their values \(equality deletes\), so its rows cannot be shown"):
        place.rows()
    with pytest.raises(UnsupportedError, match=r"\(equality deletes\); to read it, add the Iceberg Spark runtime jar"):
        table_of(two_days).read()
    assert table_of(two_days).count(WHOLE_TABLE) is None
    expire(place.workspace, place.table)
    assert two_days.theirs() == {1: [12, 13], 2: [21], 3: [31]}
    place.by_hand(1, [11, 18])
    assert two_days.theirs() == {1: [11, 18], 2: [21], 3: [31]}, "what was deleted before does not meet rows of later"
    two_days.full_refresh(3)
    assert two_days.theirs() == place.rows() == {1: [11, 18], 2: [21], 3: [31]}


def test_a_rollback_ends_before_what_flink_deleted(two_days: SharedTable) -> None:
    upsert(two_days, "-", ("2024-03-01", 11))
    two_days.place.refresh(3, [31])
    two_days.place.roll_back(2, "back")
    assert two_days.theirs() == two_days.place.rows() == {1: [11, 12], 2: [21]}


@pytest.fixture
def upserted(shared: SharedTable) -> SharedTable:
    """A table of Flink's with a primary key, and rows that were written more than once."""
    shared.place.refresh(1, [1])  # which makes the database
    source = of_name(shared, "upserted")
    source.sql(
        "CREATE TABLE {t} (ds STRING, k INT, v STRING, PRIMARY KEY (ds, k) NOT ENFORCED) PARTITIONED BY (ds) "
        "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')",
        "INSERT INTO {t} VALUES ('a', 1, 'first'), ('a', 2, 'second'), ('b', 1, 'third')",
        "INSERT INTO {t} VALUES ('a', 1, 'changed')",
    )
    assert [row["v"] for row in source.sql("SELECT v FROM {t} ORDER BY ds, k")] == ["changed", "second", "third"]
    return source


QUERY = "SELECT ds, k, v FROM upserted"


def test_a_table_that_flink_upserts_into_is_refused_with_a_remedy(upserted: SharedTable, spark: SparkSession) -> None:
    with pytest.raises(UnsupportedError, match=r"\(equality deletes\); .* add the Iceberg Spark runtime jar .*spark\.conf"):
        compute(of_name(upserted, "copied"), spark, QUERY)
    upserted.sql("INSERT OVERWRITE {t} /*+ OPTIONS('upsert-enabled' = 'false') */ SELECT ds, k, v FROM {t}")
    compute(of_name(upserted, "copied"), spark, QUERY)
    copied = of_name(upserted, "copied").sql("SELECT ds, k, v FROM {t} ORDER BY ds, k")
    assert copied == upserted.sql("SELECT ds, k, v FROM {t} ORDER BY ds, k")


def test_the_remedy_reads_what_flink_reads(upserted: SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Iceberg's own library in Spark; changes of one partition only are seen as such."""
    monkeypatch.chdir(upserted.place.folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    catalog = upserted.place.table.catalog
    assert isinstance(upserted.engine, Flink)
    properties = upserted.engine.catalogs[catalog]
    conf = {
        **SMALL,
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, [*jars("iceberg-spark-4.1"), *jars("sqlite-jdbc")])),
        f"spark.sql.catalog.{catalog}": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.{catalog}.{key}": value for key, value in properties.items()},
    }
    listed = ", ".join(f"'{key}': '{value}'" for key, value in conf.items())
    copied = of_name(upserted, "copied")
    request = request_of(copied, QUERY, f"spark: {{conf: {{{listed}}}}}")
    settings = SparkSettings(conf=conf, env_vars={"SPARK_HOME": str(spark_home("4.1"))})

    def job(plan: RefreshPlan) -> None:
        upserted.sql("INSERT INTO {t} VALUES ('a', 2, 'later')")
        SparkSubmitRunner(settings, "local[2]").run(plan, dict(os.environ))

    assert isinstance(run(copied.place.workspace, request, job), Version)
    rows = copied.sql("SELECT ds, k, v FROM {t} ORDER BY ds, k")
    assert rows == [
        {"ds": "a", "k": 1, "v": "changed"},
        {"ds": "a", "k": 2, "v": "second"},
        {"ds": "b", "k": 1, "v": "third"},
    ], "what is written after the plan is in the next refresh"
