"""A job that writes its stage with PyArrow: for tests of what happens around the job, not in it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.core.plan import RefreshPlan, RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.storage import write_text


def write_numbers(plan: RefreshPlan, numbers: tuple[int, ...] = (1, 2, 3)) -> None:
    """Write the result of ``SELECT ... AS x`` of an unpartitioned table, and say so."""
    file = Path(urlsplit(plan.data_location).path) / "part-0.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": pa.array(numbers, pa.int64())}), file)
    result = RefreshResult(
        token=plan.token,
        application_id="by hand",
        rows=len(numbers),
        files=(StagedFile(f"{plan.data_location}/{file.name}", file.stat().st_size),),
        columns=(Column("x", "bigint"),),
    )
    write_text(plan.result_location, result.to_json())
