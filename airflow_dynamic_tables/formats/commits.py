"""What every format asks of a result before it looks at files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.tables.partitions import describe
from airflow_dynamic_tables.exceptions import StageRejectedError
from airflow_dynamic_tables.formats.base import StagingContext


def coverage(planned: Sequence[Mapping[str, str]]) -> Callable[[Mapping[str, str | None]], bool]:
    """Whether a plan covers a partition; a planned spec that leaves out keys stands for all their values."""
    values: dict[tuple[str, ...], set[tuple[str | None, ...]]] = {}
    for spec in planned:
        values.setdefault(tuple(spec), set()).add(tuple(spec.values()))
    return lambda spec: not planned or any(tuple(map(spec.get, keys)) in found for keys, found in values.items())


def check_result(context: StagingContext, stage: str, result: RefreshResult) -> None:
    """Check that a result is of that stage and within its plan.

    :raises StageRejectedError: says what is wrong.
    """
    if result.token != context.token:
        raise StageRejectedError(f"The result is of token {result.token}, not of {context.token}.")
    covers = coverage(context.partitions)
    for spec in result.partitions:
        if not covers(spec):
            raise StageRejectedError(f"The job wrote partition {describe(spec)}, which was not planned.")
    outside = [file.path for file in result.files if not file.path.startswith(f"{stage}/")]
    if outside:
        raise StageRejectedError(f"The job wrote {outside[0]}, which is outside its stage.")
