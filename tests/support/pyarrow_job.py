"""A job that writes its stage with PyArrow: for tests of what happens around the job, not in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.core.refresh.expectations import ExpectationResult
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.sinks import Sink

Days = Mapping[str, Sequence[int]]


def write_numbers(plan: RefreshPlan, numbers: tuple[int, ...] = (1, 2, 3), violations: Mapping[str, int] | None = None) -> None:
    """Write the result of ``SELECT ... AS x`` of an unpartitioned table, and say so.

    :param violations: what is found of expectations, by their names; nothing of the others.
    """
    file = Path(urlsplit(plan.data_location).path) / "part-0.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": pa.array(numbers, pa.int64())}), file)
    result = RefreshResult(
        token=plan.token,
        application_id="by hand",
        rows=len(numbers),
        files=(StagedFile(f"{plan.data_location}/{file.name}", file.stat().st_size),),
        columns=(Column("x", "bigint", comment=plan.comments.get("x")),),
        expectations=tuple(
            ExpectationResult(item.name, item.action, (violations or {}).get(item.name, 0)) for item in plan.expectations
        ),
    )
    write_text(plan.result_location, result.to_json())


def write_scattered(plan: RefreshPlan, numbers: Sequence[int]) -> None:
    files = []
    for number in numbers:
        file = Path(urlsplit(plan.data_location).path) / f"part-{number}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": pa.array([number], pa.int64())}), file)
        files.append(StagedFile(f"{plan.data_location}/{file.name}", file.stat().st_size))
    result = RefreshResult(plan.token, "by hand", len(numbers), tuple(files), (Column("x", "bigint"),))
    write_text(plan.result_location, result.to_json())


def write_days(
    plan: RefreshPlan,
    days: Days,
    on_step: Callable[[str], None] = lambda _: None,
    more: Sequence[str] = (),
    scattered: bool = False,
) -> None:
    """Write the rows ``ds, n`` of a table partitioned by ``ds``, one file a day or into the table of a server, and say so.

    :param on_step: told ``writing`` after every file, ``written`` after all, ``result`` at the end.
    :param more: names of more columns, which have the values of ``n``.
    :param scattered: write one file a row.
    """
    files = []
    if plan.sink is not None:
        _write_into(plan.sink, days, on_step, more)
    parts = [(day, part) for day, rows in days.items() for part in ([[row] for row in rows] if scattered else [rows])]
    for number, (day, numbers) in enumerate(parts if plan.sink is None else ()):
        uri = f"{plan.data_location}/{_folder(plan, day)}{plan.token}-part-{number}.{plan.file_format}"
        rows = {"ds": pa.array([day] * len(numbers), pa.string()), **dict.fromkeys(("n", *more), pa.array(numbers, pa.int64()))}
        if plan.partition_keys and not plan.keys_in_files:
            del rows["ds"]
        written = pa.BufferOutputStream()
        (orc.write_table if plan.file_format == "orc" else pq.write_table)(pa.table(rows), written)
        content = written.getvalue().to_pybytes()
        with fsspec.open(uri, "wb", auto_mkdir=True) as file:
            file.write(content)
        files.append(StagedFile(uri, len(content)))
        on_step("writing")
    on_step("written")
    result = RefreshResult(
        token=plan.token,
        application_id="by hand",
        rows=sum(map(len, days.values())),
        files=tuple(files),
        columns=(Column("ds", "string"), *(Column(name, "bigint") for name in ("n", *more))),
        partitions=tuple({"ds": day} for day in days) if plan.partition_keys else (),
    )
    write_text(plan.result_location, result.to_json())
    on_step("result")


def _write_into(sink: Sink, days: Days, on_step: Callable[[str], None], more: Sequence[str]) -> None:
    with psycopg.connect(sink.url.removeprefix("jdbc:"), user=sink.user, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {sink.table}".encode())
        connection.execute(
            f"CREATE TABLE {sink.table} (ds text, {', '.join(f'{name} bigint' for name in ('n', *more))})".encode()
        )
        for day, numbers in days.items():
            rows = [(day, *(number,) * (1 + len(more))) for number in numbers]
            with connection.cursor() as cursor, cursor.copy(f"COPY {sink.table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
            on_step("writing")


def _folder(plan: RefreshPlan, day: str) -> str:
    if not plan.partition_keys:
        return ""
    return f"_partition_0={day}/" if plan.keys_in_files else f"ds={day}/"
