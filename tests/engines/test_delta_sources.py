"""Tables that Spark with Delta's own library wrote, as sources of ours: read from their files, by the library, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.runners.spark_submit import SparkSubmitRunner
from airflow_dynamic_tables.services.continuous.streams.feeds import look_of
from airflow_dynamic_tables.services.refresh.planning import bind_sources
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.clock import Clock
from tests.support.delta_spark import delta_library
from tests.support.jobs import refresh
from tests.support.pyarrow_job import write_days
from tests.support.spark import PlainSpark

pytestmark = pytest.mark.large

MARCH = datetime(2024, 3, 1, tzinfo=UTC)

READ: dict[str, tuple[str, ...]] = {
    "types": (
        (
            "CREATE TABLE {t} (id BIGINT, day DATE, at TIMESTAMP, ntz TIMESTAMP_NTZ, d DECIMAL(38, 10), f FLOAT, b BINARY, "
            "t INT, s STRUCT<a: INT, b: ARRAY<MAP<STRING, INT>>>, ok BOOLEAN) USING delta PARTITIONED BY (day)"
        ),
        (
            "INSERT INTO {t} SELECT id, DATE'2024-03-30' + CAST(id AS INT), TIMESTAMP'2024-03-31 01:30:00.000001 UTC', "
            "TIMESTAMP_NTZ'2024-03-31 02:30:00.000001', id + 0.0000000001, 0.1, X'00FF', 1, "
            "named_struct('a', CAST(NULL AS INT), 'b', array(map('k', 1))), id = 1 FROM range(3)"
        ),
    ),
    "times as partitions": (
        "CREATE TABLE {t} (id BIGINT, at TIMESTAMP, ntz TIMESTAMP_NTZ) USING delta PARTITIONED BY (at, ntz)",
        (
            "INSERT INTO {t} VALUES (1, TIMESTAMP'2024-03-31 01:30:00.5 UTC', TIMESTAMP_NTZ'2024-03-31 02:30:00'), "
            "(2, TIMESTAMP'2024-01-01 00:00:00 UTC', NULL), (3, NULL, TIMESTAMP_NTZ'2024-01-01 00:00:00')"
        ),
    ),
    "odd partition values": (
        "CREATE TABLE {t} (id BIGINT, ds STRING, x DECIMAL(10, 2), ok BOOLEAN) USING delta PARTITIONED BY (ds, x, ok)",
        (
            "INSERT INTO {t} VALUES (1, 'a b/%=é', 1.50, true), (2, '', 0, false), (3, NULL, NULL, NULL), (4, '%20', -1, true), "
            "(5, 'a:b+c', 1.5, true)"
        ),
    ),
    "checkpoints of version 2": (
        (
            "CREATE TABLE {t} (id BIGINT) USING delta "
            "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1')"
        ),
        *("INSERT INTO {t} VALUES (1)",) * 3,
    ),
    "in-commit timestamps": (
        "CREATE TABLE {t} (id BIGINT) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {t} VALUES (1)",
    ),
    "row tracking": (
        "CREATE TABLE {t} (id BIGINT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {t} VALUES (1), (2)",
        "UPDATE {t} SET id = 3 WHERE id = 2",
    ),
    "clustering": (
        "CREATE TABLE {t} (id BIGINT, x STRING) USING delta CLUSTER BY (id)",
        "INSERT INTO {t} VALUES (1, 'a')",
        "INSERT INTO {t} VALUES (2, 'b')",
        "OPTIMIZE {t}",
    ),
    "identity, generated, default and required columns": (
        (
            "CREATE TABLE {t} (id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMP NOT NULL, day DATE GENERATED ALWAYS AS "
            "(CAST(at AS DATE)), c VARCHAR(3), v VARCHAR(4) DEFAULT 'x') USING delta PARTITIONED BY (day) "
            "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
        ),
        "INSERT INTO {t} (at, c) VALUES (TIMESTAMP'2024-03-31 01:30:00 UTC', 'a')",
    ),
    "change data feed": (
        "CREATE TABLE {t} (id BIGINT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO {t} VALUES (1), (2), (3)",
        "DELETE FROM {t} WHERE id = 2",
        "UPDATE {t} SET id = 4 WHERE id = 3",
    ),
    "deletion vectors that were purged": (
        "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(0, 9, 1, 1)",
        "DELETE FROM {t} WHERE id = 3",
        "REORG TABLE {t} APPLY (PURGE)",
    ),
    "a column that came later": (
        "CREATE TABLE {t} (id BIGINT, s STRUCT<a: INT>) USING delta",
        "INSERT INTO {t} VALUES (1, named_struct('a', 1))",
        "ALTER TABLE {t} ADD COLUMNS (x STRING AFTER id, s.b INT)",
        "INSERT INTO {t} VALUES (2, 'x', named_struct('a', 1, 'b', 2))",
    ),
    "a shallow clone": (
        "CREATE TABLE {t} SHALLOW CLONE {clone}",
        "INSERT INTO {t} VALUES (2)",
    ),
    "a restore": (
        "CREATE TABLE {t} (id BIGINT) USING delta",
        "INSERT INTO {t} VALUES (1)",
        "INSERT INTO {t} VALUES (2)",
        "RESTORE TABLE {t} TO VERSION AS OF 1",
    ),
    "a table without rows": ("CREATE TABLE {t} (id BIGINT) USING delta",),
}

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "deletion vectors": (
        (
            (
                "CREATE TABLE {t} USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
                "AS SELECT id AS n FROM range(0, 9, 1, 1)"
            ),
            "DELETE FROM {t} WHERE n = 3",
        ),
        "holds deletion vectors",
    ),
    "column mapping by name": (
        (
            "CREATE TABLE {t} (`a b` BIGINT, gone STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "INSERT INTO {t} VALUES (1, 'x'), (2, 'y')",
            "ALTER TABLE {t} RENAME COLUMN `a b` TO n",
            "ALTER TABLE {t} DROP COLUMN gone",
        ),
        "has columns that are called otherwise in its files",
    ),
    "wider types": (
        (
            "CREATE TABLE {t} (n INT) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "INSERT INTO {t} VALUES (1)",
            "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
            "INSERT INTO {t} VALUES (99999999999)",
        ),
        "needs a reader that knows typeWidening",
    ),
    "variant": (
        (
            "CREATE TABLE {t} (n BIGINT, v VARIANT) USING delta",
            "INSERT INTO {t} SELECT 7, parse_json('{{\"a\": 1}}')",
        ),
        "needs a reader that knows variantType",
    ),
}


class Sources:
    """Delta tables of others in folders, and tables of ours that read them."""

    def __init__(self, folder: Path, workspace: Workspace, delta: PlainSpark) -> None:
        self.folder = folder
        self.workspace = workspace
        self.delta = delta

    def named(self, name: str) -> str:
        """What Delta calls a table."""
        return f"delta.`{self.folder}/{name}`"

    def make(self, name: str, *statements: str) -> None:
        for statement in statements:
            self.delta.sql(statement.format(t=self.named(name), clone=self.named("clone")))

    def request(self, query: str, day: int = 1, more: str = "", **asked: object) -> RefreshRequest:
        names = [path.name for path in self.folder.iterdir() if (path / "_delta_log").exists()]
        sources = "".join(f"- {{name: raw.{name}, format: delta, path: {self.folder}/{name}}}\n" for name in names)
        definitions = self.folder / "tables.yaml"
        definitions.write_text(
            f"defaults: {{catalog: lake, database: sales, freshness: 1 day}}\nsources:\n{sources}"
            f"dynamic_tables:\n- name: copy\n  format: delta\n  query: {query}\n  {more}\n"
        )
        loaded = load_definitions(definitions)
        (table,) = loaded.tables.values()
        token = str(uuid4())
        return RefreshRequest(table, loaded.sources, MARCH + timedelta(days=day), token, token, **asked)  # type: ignore[arg-type]

    def copy(self) -> str:
        """What Delta calls the table of ours."""
        (table,) = load_definitions(self.folder / "tables.yaml").tables
        return f"delta.`{(self.workspace.existing_table(table).folder() or '').removeprefix('file://')}`"


@pytest.fixture
def sources(tmp_path: Path, workspace: Workspace, delta_spark: PlainSpark) -> Sources:
    folder = tmp_path / "raw"
    folder.mkdir()
    return Sources(folder, workspace, delta_spark)


@pytest.mark.parametrize("case", READ)
def test_a_table_of_delta_is_copied_as_delta_reads_it(sources: Sources, spark: SparkSession, case: str) -> None:
    if case == "a shallow clone":
        sources.make("clone", "CREATE TABLE {t} USING delta AS SELECT 1L AS id")
    sources.make("t", *READ[case])
    outcome = run(sources.workspace, sources.request("SELECT * FROM raw.t"), lambda plan: refresh(spark, plan))
    assert isinstance(outcome, Version)
    theirs, ours = sources.named("t"), sources.copy()
    assert types(sources, ours) == types(sources, theirs)
    assert rows(sources, ours) == rows(sources, theirs)
    assert bool(rows(sources, ours)) == (case != "a table without rows")


def types(sources: Sources, table: str) -> list[tuple[str, str]]:
    """Columns by name, as Delta describes them; a text of so many characters is a text."""
    found = sources.delta.sql(f"SELECT * FROM {table} LIMIT 0")
    assert found == []
    described = sources.delta.sql(f"DESCRIBE TABLE {table}")
    columns = [(row["col_name"], row["data_type"]) for row in described]
    columns = columns[: next((place for place, column in enumerate(columns) if column[0].startswith("#")), len(columns))]
    return [(name, "string" if kind.startswith(("char(", "varchar(")) else kind) for name, kind in columns if name]


def rows(sources: Sources, table: str) -> list[str]:
    columns = ", ".join(f"`{name}`" for name, _ in types(sources, table))
    found = sources.delta.sql(f"SELECT to_json(struct({columns}), map('ignoreNullFields', 'false')) AS row FROM {table}")
    return sorted(row["row"] for row in found)


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_whose_files_do_not_tell_its_rows_is_refused_with_a_remedy(sources: Sources, case: str) -> None:
    statements, why = REFUSED[case]
    sources.make("t", *statements)
    request = sources.request("SELECT n FROM raw.t")
    remedy = r"add Delta's library for Spark .*spark\.sql\.extensions: io\.delta\.sql\.DeltaSparkSessionExtension"
    with pytest.raises(UnsupportedError, match=f"Delta table lake.raw.t {why}.*{remedy}"):
        bind_sources(sources.workspace, request.table, request.sources)


def test_columns_that_are_mapped_by_id_are_refused_whatever_library_there_is(sources: Sources) -> None:
    sources.make("t", "CREATE TABLE {t} (n BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')")
    sources.make("t", "INSERT INTO {t} VALUES (1)")
    library = ", ".join(f"{key}: '{value}'" for key, value in delta_library().items())
    for more in ("", f"spark: {{conf: {{{library}}}}}"):
        request = sources.request("SELECT n FROM raw.t", more=more)
        with pytest.raises(UnsupportedError, match=r"maps its columns by id.*; read a copy of it"):
            bind_sources(sources.workspace, request.table, request.sources)


def test_the_remedy_reads_all_of_them_at_the_versions_that_the_refresh_began_with(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that others add between the plan and the job are in the next refresh."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    names = [f"t{number}" for number, _ in enumerate(REFUSED)]
    for name, (statements, _) in zip(names, REFUSED.values(), strict=True):
        sources.make(name, *statements)
    query = " UNION ALL ".join(f"SELECT '{name}' AS source, n FROM raw.{name}" for name in names)
    library = ", ".join(f"{key}: '{value}'" for key, value in delta_library().items())
    request = sources.request(query, more=f"spark: {{conf: {{{library}}}}}")
    submitted = SparkSubmitRunner(SparkSettings(conf={**request.table.spark.conf, **SMALL}), "local[2]")

    def job(plan: RefreshPlan) -> None:
        sources.make("t2", "INSERT INTO {t} VALUES (55)")
        submitted.run(plan, dict(os.environ))

    outcome = run(sources.workspace, request, job)
    assert isinstance(outcome, Version)
    found = {(row["source"], row["n"]) for row in sources.delta.sql(f"SELECT * FROM {sources.copy()}")}
    expected = {"t0": {0, 1, 2, 4, 5, 6, 7, 8}, "t1": {1, 2}, "t2": {1, 99999999999}, "t3": {7}}
    assert found == {(name, n) for name, numbers in expected.items() for n in numbers}


SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "2",
}

DAILY = "partitioned_by: [ds]"

CHANGES = {
    "append": "INSERT INTO {t} VALUES ('b', 3)",
    "delete": "DELETE FROM {t} WHERE n = 2",
    "merge": "MERGE INTO {t} t USING (SELECT 'a' AS ds, 1L AS n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET n = 9",
    "restore": "RESTORE TABLE {t} TO VERSION AS OF 1",
    "optimize": "OPTIMIZE {t}",
    "overwrite": "INSERT OVERWRITE {t} VALUES ('c', 7)",
    "replace": "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 'c' AS ds, 8L AS n",
}


@pytest.fixture
def read_daily(sources: Sources, clock: Clock) -> Callable[[int], Version | Skipped]:
    """Refreshes a table of ours on a day, whose rows are those that Delta reads from its source then."""
    sources.make("t", "CREATE TABLE {t} (ds STRING, n BIGINT) USING delta PARTITIONED BY (ds)")
    sources.make("t", "INSERT INTO {t} VALUES ('a', 1), ('b', 2)", "INSERT INTO {t} VALUES ('a', 5)")

    def job(plan: RefreshPlan) -> None:
        (source,) = plan.sources
        days: dict[str, list[int]] = {}
        for row in sources.delta.sql(f"SELECT * FROM {sources.named('t')} VERSION AS OF {source.version}"):
            days.setdefault(row["ds"], []).append(row["n"])
        write_days(plan, days)

    def on(day: int) -> Version | Skipped:
        clock.time = MARCH + timedelta(days=day)
        return run(sources.workspace, sources.request("SELECT ds, n FROM raw.t", day, DAILY, is_scheduled=True), job)

    return on


@pytest.mark.parametrize("case", CHANGES)
def test_what_delta_changes_is_seen_by_the_next_refresh_and_nothing_by_the_one_after(
    sources: Sources, read_daily: Callable[[int], Version | Skipped], case: str
) -> None:
    assert isinstance(read_daily(1), Version)
    same = read_daily(2)
    assert isinstance(same, Skipped)
    assert same.reason.code is ReasonCode.UNCHANGED
    sources.make("t", CHANGES[case])
    # Merged files have the same rows.
    assert isinstance(read_daily(3), Skipped if case == "optimize" else Version)
    assert rows(sources, sources.copy()) == rows(sources, sources.named("t"))
    assert isinstance(read_daily(4), Skipped)
    sources.make("t", "VACUUM {t} RETAIN 0 HOURS", "ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'sales')")
    # The files of the version before the merge are gone, so it counts as changed.
    assert isinstance(read_daily(5), Version if case == "optimize" else Skipped)


def test_deletion_vectors_of_a_source_stop_the_next_refresh_by_name(
    sources: Sources, read_daily: Callable[[int], Version | Skipped]
) -> None:
    assert isinstance(read_daily(1), Version)
    sources.make("t", "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')", "OPTIMIZE {t}")
    read_daily(2)  # merged files have no deletion vectors yet
    sources.make("t", "DELETE FROM {t} WHERE n = 1")
    with pytest.raises(UnsupportedError, match="holds deletion vectors"):
        read_daily(3)
    sources.make("t", "REORG TABLE {t} APPLY (PURGE)")
    assert isinstance(read_daily(4), Version)
    assert rows(sources, sources.copy()) == rows(sources, sources.named("t"))


def test_a_stream_reads_what_delta_appends_and_ends_where_rows_are_replaced(sources: Sources) -> None:
    sources.make("t", "CREATE TABLE {t} (n BIGINT) USING delta", "INSERT INTO {t} VALUES (1)")
    request = sources.request("SELECT n FROM raw.t")
    (source,) = request.sources.values()
    look = look_of(sources.workspace, request.table, source.identifier, source, "v")
    assert look is not None
    first = look(None).binding
    assert first is not None

    sources.make("t", "OPTIMIZE {t}")
    assert look(first.state).binding is None
    insert_only = "MERGE INTO {t} t USING (SELECT 2L AS n) s ON t.n = s.n WHEN NOT MATCHED THEN INSERT *"
    sources.make("t", insert_only)
    second = look(first.state).binding
    assert second is not None
    assert len(second.files) == 1
    sources.make("t", "INSERT INTO {t} VALUES (3)", "OPTIMIZE {t}")
    third = look(second.state).binding
    assert third is not None
    assert len(third.files) == 1, "the file that was added, which is kept when it is merged with others"
    sources.make("t", "RESTORE TABLE {t} TO VERSION AS OF 1")
    ended = look(third.state)
    assert ended.binding is None
    assert "replaced or removed rows" in (ended.ended or "")
