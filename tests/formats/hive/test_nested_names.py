"""Nested fields with odd names, and types that Hive does not have: what is committed, every Spark on the metastore can read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_dynamic_tables.clients.metastore import tables
from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import parse_type
from airflow_dynamic_tables.exceptions import SchemaEvolutionError
from airflow_dynamic_tables.formats.base import StagedTable
from tests.support.benches.hive import hive_bench
from tests.support.benches.staging import Bench
from tests.support.spark import PlainSpark

NAMES = ("order id", "a-b", "größe", "x.y", "select", "1", "(a)", "漢 字", "A'b\"")
TYPE = str(parse_type(f"struct<{','.join(f'`{name}`:int' for name in NAMES)}>"))
COLUMNS = (
    Column("flat", TYPE),
    Column("many", f"array<{TYPE}>"),
    Column("by", f"map<string,struct<`deep one`:{TYPE}>>"),
    Column("n", "bigint"),
)
STRUCT = pa.struct([(name, pa.int32()) for name in NAMES])
TYPES = (STRUCT, pa.list_(STRUCT), pa.map_(pa.string(), pa.struct([("deep one", STRUCT)])), pa.int64())
VALUE = {name: number for number, name in enumerate(NAMES)}
ROW = {"flat": VALUE, "many": [VALUE], "by": {"k": {"deep one": VALUE}}, "n": 7}


@pytest.fixture(params=["parquet", "orc"])
def hive(request: pytest.FixtureRequest, metastore: Metastore, tmp_path: Path) -> Bench:
    return hive_bench(metastore, tmp_path, request.param)


def write(bench: Bench, staged: StagedTable) -> RefreshResult:
    """One row with odd names."""
    folder = "data/ds=1" if bench.partition_keys else "data"
    file = Path(staged.begin().removeprefix("file://"), folder, f"part-0.{bench.hive_format}")
    file.parent.mkdir(parents=True)
    values = {**ROW, "by": [("k", ROW["by"]["k"])]}
    rows = pa.table({name: pa.array([values[name]], kind) for name, kind in zip(ROW, TYPES, strict=True)})
    (orc if bench.hive_format == "orc" else pq).write_table(rows, file)
    columns = (*COLUMNS, Column("ds", "string")) if bench.partition_keys else COLUMNS
    files = (StagedFile(f"{staged.begin()}/{folder}/{file.name}", file.stat().st_size),)
    touched = ({"ds": "1"},) if bench.partition_keys else ()
    return RefreshResult(staged.begin().rpartition("/")[2], "job", 1, files, columns, touched)


def commit(bench: Bench, token: str) -> None:
    staged = bench.stage(token)
    bench.commit(staged, write(bench, staged))


@pytest.mark.large
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_plain_spark_reads_fields_of_any_name(hive: Bench, plain_spark: PlainSpark, keys: tuple[str, ...]) -> None:
    hive.partition_keys = keys
    commit(hive, "first")
    assert plain_spark.sql(f"SELECT * FROM {hive.path.database}.{hive.path.name}") == [{**ROW, "ds": "1"} if keys else ROW]


@pytest.mark.sampled
@pytest.mark.parametrize("keys", [("ds",), ()])
def test_the_next_commit_repairs_what_earlier_releases_wrote(
    hive: Bench, metastore: Metastore, plain_spark: PlainSpark, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    hive.partition_keys = keys
    with monkeypatch.context() as earlier:
        earlier.setattr(tables, "hive_type", lambda ddl: str(parse_type(ddl)))
        commit(hive, "first")
    before = metastore.call("get_table", hive.path.database, hive.path.name)
    assert before.sd.cols[0].type == TYPE
    layout = hive.table.layout()
    commit(hive, "second")
    after = metastore.call("get_table", hive.path.database, hive.path.name)
    assert after.sd.cols[0].type == TYPE.replace("`", "")
    assert hive.table.layout() == layout
    assert plain_spark.sql(f"SELECT * FROM {hive.path.database}.{hive.path.name}") == [{**ROW, "ds": "1"} if keys else ROW]


def test_a_table_can_be_read_while_it_is_repaired(hive: Bench, metastore: Metastore) -> None:
    commit(hive, "first")
    schema = hive.table.read().schema
    table = metastore.call("get_table", hive.path.database, hive.path.name)
    table.sd.cols = []
    metastore.call("alter_table", table.dbName, table.tableName, table)
    assert hive.table.read().schema == schema
    commit(hive, "second")
    assert metastore.call("get_table", hive.path.database, hive.path.name).sd.cols


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("timestamp_ntz", "a Hive table has no such type"),
        ("map<string,array<timestamp_ntz>>", "a Hive table has no such type"),
        ("array<struct<`a:b`:int>>", "has a nested field 'a:b'"),
        ("struct<`a,b`:int>", "has a nested field 'a,b'"),
    ],
)
def test_what_others_could_not_read_is_refused(hive: Bench, kind: str, problem: str) -> None:
    staged = hive.stage("odd")
    result = hive.write(staged, {"1": [1]}, (*hive.columns, Column("odd", kind)))
    with pytest.raises(SchemaEvolutionError, match=f"Column 'odd' .*{problem}"):
        hive.commit(staged, result)
    with pytest.raises(SchemaEvolutionError, match=f"Column 'odd' .*{problem}"):
        hive.table.limits.check(result.columns)
