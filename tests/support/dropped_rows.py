"""A job whose expectations drop negative and odd numbers, and the table of the rows that they dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_dynamic_tables.clients.files import list_entries, read_text, write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.pyarrow_job import write_days

YAML = """
defaults: {{catalog: {table.catalog}, database: {table.database}, format: {format}}}
dynamic_tables:
- name: {table.table}
  freshness: 1 day
  partitioned_by: [ds]
  options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
  query: SELECT '1' AS ds, 1 AS n
  keep_dropped: 3 days
  expectations:
  - {{predicate: n >= 0, action: drop, name: positive}}
  - {{predicate: n % 2 = 0, action: drop, name: even}}
  {more}
"""


def violated(number: int) -> list[str]:
    return [name for name, is_violated in (("positive", number < 0), ("even", number % 2 == 1)) if is_violated]


def write_dropped(plan: RefreshPlan, day: str, numbers: Sequence[int]) -> None:
    """Write the dropped rows as the job does."""
    assert plan.dropped is not None
    writing = plan.of_dropped(plan.dropped)
    (partition,) = writing.partitions
    keys = {key: pa.array([value] * len(numbers)) for key, value in partition.items()}
    rows = {
        **(keys if plan.keys_in_files else {}),
        "dropped_at": pa.array([plan.dropped.at] * len(numbers), pa.timestamp("us", "UTC")),
        "dropped_for": pa.array(list(map(violated, numbers)), pa.list_(pa.string())),
        "ds": pa.array([day] * len(numbers)),
        "n": pa.array(numbers, pa.int64()),
    }
    names = keys if not plan.keys_in_files else {f"_partition_{number}": key for number, key in enumerate(keys.values())}
    folders = "/".join(f"{name}={value}" for name, value in zip(names, partition.values(), strict=True))
    uri = f"{writing.data_location}/{folders}/part.{plan.file_format}"
    with fsspec.open(uri, "wb", auto_mkdir=True) as file:
        (orc.write_table if plan.file_format == "orc" else pq.write_table)(pa.table(rows), file)
    columns = (*keys, "dropped_at", "dropped_for", "ds", "n")
    types = {"dropped_at": "timestamp", "dropped_for": "array<string>", "n": "bigint"}
    write_text(
        writing.result_location,
        RefreshResult(
            writing.token,
            "by hand",
            len(numbers),
            (StagedFile(uri, next(entry.bytes for entry in list_entries(uri.rpartition("/")[0]))),),
            tuple(Column(name, types.get(name, "string")) for name in columns),
            (partition,),  # type: ignore[arg-type]  # no value is null
        ).to_json(),
    )


def job(day: str, numbers: Sequence[int]) -> Callable[[RefreshPlan], None]:
    """The job of refreshing a day whose source has these numbers."""

    def run(plan: RefreshPlan) -> None:
        write_days(plan, {day: kept} if (kept := [number for number in numbers if not violated(number)]) else {})
        result = RefreshResult.from_json(read_text(plan.result_location))
        counts = {name: sum(name in violated(number) for number in numbers) for name in ("positive", "even")}
        results = [ExpectationResult(one.name, one.action, counts.get(one.name, 0)) for one in plan.expectations]
        write_text(plan.result_location, replace(result, expectations=tuple(results)).to_json())
        if dropped := [number for number in numbers if violated(number)]:
            write_dropped(plan, day, dropped)

    return run


def dropped_of(workspace: Workspace, table: TableIdentifier, table_format: str) -> dict[str, dict[int, list[str]]]:
    """The dropped numbers with the expectations that they violate, by refresh."""
    found: dict[str, dict[int, list[str]]] = {}
    for row in workspace.table(replace(table, table=f"{table.table}__dropped"), table_format).sample(100):
        assert row["n"] not in found.get(row["dropped_by"], {}), "a row is kept once"
        found.setdefault(row["dropped_by"], {})[row["n"]] = list(row["dropped_for"])
    return found
