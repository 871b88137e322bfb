"""What every format asks of a result before it looks at files."""

from __future__ import annotations

from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.tables.partitions import describe
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import StagingContext


def check_result(context: StagingContext, stage: str, result: RefreshResult) -> None:
    """Check that a result is of that stage and within its plan.

    :raises StageRejectedError: says what is wrong.
    """
    if result.token != context.token:
        raise StageRejectedError(f"The result is of token {result.token}, not of {context.token}.")
    if context.partitions.is_empty:
        raise StageRejectedError(f"The plan of {context.token} replaces nothing, so there is nothing to commit.")
    for spec in result.partitions:
        if not context.partitions.covers(spec):
            raise StageRejectedError(f"The job wrote partition {describe(spec)}, which was not planned.")
    outside = [file.path for file in result.files if not file.path.startswith(f"{stage}/")]
    if outside:
        raise StageRejectedError(f"The job wrote {outside[0]}, which is outside its stage.")
