"""The Spark job without Spark: DuckDB runs the query of a plan over the rows that it binds, and merges.

For random tests of many refreshes. sqlglot translates the queries, so they must mean the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding, SourcePart, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import JobFailedError

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
}
_NAMES = {**{kind: name for name, kind in _TYPES.items()}, pa.large_string(): "string"}
_QUERIES: dict[str, str] = {}


def query(views: Mapping[str, pa.Table], text: str) -> pa.Table:
    """Run a query of Spark's over tables by their names."""
    with duckdb.connect(config={"threads": "1"}) as database:
        for name, rows in views.items():
            database.register(name, rows)
        found = database.sql(_translated(text))
        # Spark's sum of a bigint is a bigint.
        narrowed = [
            f'CAST("{name}" AS BIGINT) AS "{name}"' if str(kind) == "HUGEINT" else f'"{name}"'
            for name, kind in zip(found.columns, found.types, strict=True)
        ]
        return found.project(", ".join(narrowed)).to_arrow_table()


def _translated(text: str) -> str:
    if text not in _QUERIES:
        (_QUERIES[text],) = sqlglot.transpile(text, read="spark", write="duckdb")
    return _QUERIES[text]


def run(plan: RefreshPlan) -> None:
    """Do what the job does: write the rows of the planned partitions into the stage, and the result last."""
    rows = query({source.view: rows_of(source) for source in plan.sources}, _planned(plan, plan.query))
    merge = plan.merge
    if merge is not None and not merge.only_adds:
        former = query({"former": rows_of(merge.current)}, _planned(plan, "SELECT * FROM former"))
        rows = query({merge.new: rows, merge.current.view: former}, merge.statement)
    columns = tuple(Column(field.name, _name_of(field.type)) for field in rows.schema)
    if plan.layout is not None:
        plan.layout.evolved(columns, plan.rebuild)
    files, partitions = [], []
    for number, (spec, part) in enumerate(_parts(rows, plan.partition_keys)):
        folders = [
            f"{f'_partition_{key}' if plan.keys_in_files else name}={value}" for key, (name, value) in enumerate(spec.items())
        ]
        uri = "/".join([plan.data_location, *folders, f"{plan.token}-{number}.parquet"])
        path = Path(urlsplit(uri).path)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part if plan.keys_in_files else part.drop_columns([*spec]), path)
        files.append(StagedFile(uri, path.stat().st_size))
        partitions.append(spec)
    result = RefreshResult(
        plan.token, "DuckDB", rows.num_rows, tuple(files), columns, tuple(partitions) if plan.partition_keys else ()
    )
    write_text(plan.result_location, result.to_json())


def _planned(plan: RefreshPlan, text: str) -> str:
    return text if plan.partitions.is_whole else f"SELECT * FROM ({text}\n) WHERE {plan.partitions.predicate}"


def _parts(rows: pa.Table, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """Yield the rows of each partition."""
    if not rows.num_rows:
        return
    if not keys:
        yield {}, rows
        return
    for values in rows.select(list(keys)).group_by(list(keys)).aggregate([]).to_pylist():
        if None in values.values():
            raise JobFailedError(f"a partition key is null: {values}")
        is_own = [pc.equal(rows[key], value) for key, value in values.items()]
        mask = is_own[0]
        for other in is_own[1:]:
            mask = pc.and_(mask, other)
        yield {key: str(values[key]) for key in keys}, rows.filter(mask)


def rows_of(source: SourceBinding) -> pa.Table:
    """Read the rows of a source that a plan binds, from exactly its files."""
    assert source.schema is not None
    schema = _schema(source.schema)
    for key in source.partition_keys:
        if key not in schema.names:
            schema = schema.append(pa.field(key, pa.string()))
    tables = [_file(file, part, schema) for part in source.every_part for file in part.files]
    return pa.concat_tables([schema.empty_table(), *tables])


def _file(uri: str, part: SourcePart, schema: pa.Schema) -> pa.Table:
    path = unquote(urlsplit(uri).path)
    rows = pq.read_table(path, partitioning=None)
    if part.deleted:
        rows = rows.filter(pa.array(~np.isin(np.arange(rows.num_rows), part.deleted)))
    values: dict[str, str] = dict(part.values)
    if part.base_path is not None:
        folders = path.removeprefix(unquote(urlsplit(part.base_path).path)).split("/")[:-1]
        values |= {name: unquote(value) for name, equals, value in (folder.partition("=") for folder in folders) if equals}
    names = {name.lower(): name for name in rows.column_names}
    columns = []
    for field in schema:
        if field.name in values:
            value = values[field.name]
            columns.append(pa.array([None if value == NULL_PARTITION else value] * rows.num_rows, pa.string()).cast(field.type))
        elif field.name.lower() in names:
            columns.append(rows[names[field.name.lower()]].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def _schema(ddl: str) -> pa.Schema:
    parsed = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", read="spark")
    return pa.schema([(column.name, _type_of(column.kind.sql("spark").lower())) for column in parsed.find_all(exp.ColumnDef)])


def _type_of(name: str) -> pa.DataType:
    if name.startswith("decimal("):
        precision, scale = name.removeprefix("decimal(").rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES[name]


def _name_of(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _NAMES[kind]
