"""Stands for a cluster where only what happens around the job matters: a ``spark3-submit`` that needs no JVM.

The ``spark-binary`` of a Spark connection is the user's to choose, so nothing of the package is replaced: operator and hook start
this as a real child process, which reads the planned source files and writes a stage, file by file. Where Spark would sleep for
the ``nap`` of a row, it waits until the file ``awake`` lies beside the source's folder.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.files import read_text, write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding, StagedFile
from airflow_dynamic_tables.core.schema import Column

_TYPES = {"x": (pa.int64(), "bigint"), "ds": (pa.string(), "string")}


def install(folder: Path) -> None:
    folder.mkdir()
    binary = folder / "spark3-submit"
    root = str(Path(__file__).parents[2])
    binary.write_text(
        f"#!{sys.executable}\nimport sys\n\nsys.path.insert(0, {root!r})\nfrom {__name__} import main\n\nmain(sys.argv)\n"
    )
    binary.chmod(0o755)


def main(arguments: Sequence[str]) -> None:
    plan = RefreshPlan.from_json(read_text(arguments[arguments.index("--plan") + 1]))
    if plan.stream is None:
        run(plan)
    else:
        from tests.support.faults.stream_job import run_stream  # takes half a second, which no other job needs

        run_stream(plan)


def run(plan: RefreshPlan) -> None:
    (source,) = plan.sources
    found = [{"nap": 0, **row} for row in _rows(source)]
    rows = [row for row in found if _planned(plan, row)]
    columns = ("x", *plan.partition_keys)
    folder, files = Path(urlsplit(plan.data_location).path), []
    for number, row in enumerate(rows):
        if row["nap"]:
            _sleep(Path(urlsplit(source.files[0]).path).parents[1] / "awake")
        file = folder / f"part-{number}.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({name: pa.array([row[name]], _TYPES[name][0]) for name in columns}), file)
        files.append(StagedFile(f"{plan.data_location}/{file.name}", file.stat().st_size))
    result = RefreshResult(
        token=plan.token,
        application_id="stand-in",
        rows=len(rows),
        files=tuple(files),
        columns=tuple(Column(name, _TYPES[name][1]) for name in columns),
        partitions=tuple({key: row[key] for key in plan.partition_keys} for row in rows) if plan.partition_keys else (),
    )
    write_text(plan.result_location, result.to_json())


def _rows(source: SourceBinding) -> list[dict[str, Any]]:
    """The rows of a source; of a table without a column ``x`` it only matters that it was read."""
    if source.format == "json":
        return [json.loads(line) for file in source.files for line in read_text(file).splitlines()]
    files = [pq.ParquetFile(urlsplit(file).path) for file in source.files if file.endswith(".parquet")]
    if not files or any("x" not in file.schema_arrow.names for file in files):
        return [{"x": 1}]
    return [row for file in files for row in file.read(["x"]).to_pylist()]


def _planned(plan: RefreshPlan, row: dict[str, Any]) -> bool:
    return plan.partitions.covers(row)


def _sleep(awake: Path) -> None:
    while not awake.exists():
        time.sleep(0.1)
