"""Commits of all formats: common checks, version properties, retries and outcomes.

A commit succeeds, certainly fails (CommitRejectedError), or has an unknown outcome (CommitUnknownError).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_none, wait_random_exponential

from airflow_dynamic_tables.core.formats import streamed_formats
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.partition_dates import normalised
from airflow_dynamic_tables.core.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schedule import is_ahead
from airflow_dynamic_tables.core.schema import Rebuild
from airflow_dynamic_tables.core.versions import StreamPosition, Version, recorded
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    DynamicTableError,
    SchemaEvolutionError,
    StageRejectedError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import CommitRequest

TOKEN = "dynamic-tables.token"
"""Property of a version with the token of its refresh."""

NUMBER = "dynamic-tables.version"
"""Property of a version with its number."""

DATA_TIMESTAMP = "dynamic-tables.data-timestamp"
SOURCES = "dynamic-tables.sources"

PARTITIONS = "dynamic-tables.partitions"
"""Property of a version with the partitions that its commit replaced, unless there are too many."""

FENCE = "dynamic-tables.fence"
"""Property of a snapshot that is not a version: it fences the commit with that token."""

COMPACTION = "dynamic-tables.compaction"
"""Property of a snapshot that is not a version: the compaction with that token rewrote the rows to fewer files."""

ATTEMPTS = 10
"""Most attempts to read a table that is changed concurrently."""

PATIENCE = 300.0
"""Seconds for retries of a commit under concurrent changes, enough for dozens of concurrent commits."""

_T = TypeVar("_T")


def until_done(
    attempt: Callable[[], _T | None],
    path: object,
    doing: str,
    *,
    pause: bool = True,
    error: type[DynamicTableError] = CommitRejectedError,
) -> _T:
    """Call ``attempt``, which reads the table each time, until it returns a value other than ``None``.

    :param pause: whether to wait with exponential backoff, so that many concurrent commits make progress.
    :param error: raised if it returned ``None`` for five minutes.
    """

    def give_up(state: RetryCallState) -> _T:
        raise error(f"{path} was changed by others {state.attempt_number} times while {doing}; try again.")

    retrying = Retrying(
        retry=retry_if_result(lambda done: done is None),
        stop=stop_after_delay(PATIENCE),
        wait=wait_random_exponential(multiplier=0.1, min=0.05, max=5) if pause else wait_none(),
        retry_error_callback=give_up,
    )
    return cast(_T, retrying(attempt))


def snapshot_properties(
    token: str, number: int, data_timestamp: datetime | None, sources: Mapping[str, str], replaced: PartitionSet
) -> dict[str, str]:
    """Return the properties of a version, for formats that have such; :func:`version_of` reads them."""
    partitions = recorded(replaced)
    return {
        TOKEN: token,
        NUMBER: str(number),
        **({DATA_TIMESTAMP: data_timestamp.astimezone(UTC).isoformat()} if data_timestamp else {}),
        SOURCES: json.dumps(dict(sources), sort_keys=True),
        **({PARTITIONS: json.dumps(partitions.to_plain())} if partitions is not None else {}),
    }


def version_of(told: Mapping[str, str], snapshot: str, committed_ms: int) -> Version:
    """Return the version described by its properties, which include a token.

    :param committed_ms: the commit time in milliseconds since 1970.
    """
    return Version(
        number=int(told.get(NUMBER) or 0),
        token=told[TOKEN],
        snapshot=snapshot,
        data_timestamp=datetime.fromisoformat(fresh) if (fresh := told.get(DATA_TIMESTAMP)) else None,
        committed_at=datetime.fromtimestamp(committed_ms / 1000, UTC),
        sources=json.loads(told.get(SOURCES) or "{}"),
        partitions=PartitionSet.from_plain(json.loads(replaced)) if (replaced := told.get(PARTITIONS)) else None,
    )


def not_restored(number: int, path: object, error: SchemaEvolutionError) -> SchemaEvolutionError:
    """Return the error for restoring an incompatible version, with instructions."""
    return SchemaEvolutionError(
        f"Version {number} of {path} is from before its columns or partition keys changed, so it can be read "
        f"(show --version {number}) but not restored: change the definition back and refresh with --full-refresh, or "
        f"restore it with rollback --with-columns. {error}"
    )


def unknown(path: object, error: BaseException) -> CommitUnknownError:
    """Return the error for a commit whose response was lost."""
    return CommitUnknownError(
        f"The outcome of the commit of {path} is unknown ({error}). It is looked up before any file is deleted."
    )


def fresh_until(wanted: datetime | None, current: Version | None) -> datetime | None:
    """Return the data timestamp of a table after a commit, in UTC: it never decreases, except from a future time."""
    times = [time for time in (wanted, current.data_timestamp if current is not None else None) if time is not None]
    if wanted is not None and is_ahead(max(times), now := datetime.now(UTC)) and not is_ahead(wanted, now):
        return wanted.astimezone(UTC)
    return max(times).astimezone(UTC) if times else None


def check_result(request: CommitRequest, token: str, stage: str, *, can_add: bool = False) -> None:
    """Check that a result matches its token, stage and plan.

    :raises UnsupportedError: if it is of a stream, and the format cannot add rows.
    """
    result = request.result
    if request.position is not None and not can_add:
        fitting = " or ".join(streamed_formats())
        raise UnsupportedError(f"Batches of a stream add rows in one step, which this format cannot; use format {fitting}.")
    if result.token != token:
        raise StageRejectedError(f"The result is of token {shown(result.token)}, not of {token}.")
    if request.partitions.is_empty:
        raise StageRejectedError(f"The plan of {token} replaces nothing, so there is nothing to commit.")
    if request.rebuild is not Rebuild.NOTHING and not request.partitions.is_whole:
        raise StageRejectedError(f"The plan of {token} replaces some partitions, so it cannot change columns or partition keys.")
    _check_spelling(request.partitions, result)
    for spec in result.partitions:
        if not request.partitions.covers(spec):
            raise StageRejectedError(f"The job wrote partition {shown(describe(spec))}, which was not planned.")
    outside = [file.path for file in result.files if not _is_below(file.path, stage)]
    if outside:
        raise StageRejectedError(f"The job wrote {shown(outside[0])}, which is outside its stage.")


def check_base(path: object, request: CommitRequest, current: Version | None, versions: Callable[[], Iterable[Version]]) -> None:
    """Check that a table was not rolled back behind the version that a refresh was planned on.

    The refresh completes that version, and sets the table's data timestamp accordingly: on an earlier version, it would omit the
    changes in between. A later version that continues it is accepted. A refresh of the complete table does not depend on it.

    :param versions: returns its versions, without those that another engine rolled back.
    :raises CommitRejectedError: if the table was rolled back.
    """
    base = request.base
    if base is None or request.partitions.is_whole or (current is not None and current.token == base.token):
        return
    is_older = current is None or (
        base.data_timestamp is not None and (current.data_timestamp is None or current.data_timestamp < base.data_timestamp)
    )
    if is_older or all(version.token != base.token for version in versions()):
        raise CommitRejectedError(
            f"{path} went back to an earlier version after this refresh was planned, so its rows do not continue those of the "
            "table. Nothing was committed; the next refresh makes up for all that is missing."
        )


def check_position(path: object, request: CommitRequest, position: Callable[[], StreamPosition | None]) -> None:
    """Check that rows are only added to those that they follow, so that no batch of a stream is added twice.

    :raises CommitRejectedError: if the table has another position.
    """
    if request.follows is not None and position() != request.follows:
        raise CommitRejectedError(
            f"{path} does not hold what stream {request.follows.stream} returned up to batch {request.follows.batch}: "
            "another refresh or another engine changed its rows, or the batch is there already."
        )


def check_addition(path: object, request: CommitRequest, snapshot: str) -> None:
    """Check that rows are only added to the rows that they were computed for.

    :raises CommitRejectedError: if the table has changed since.
    """
    if request.adds_to not in (None, snapshot):
        raise CommitRejectedError(
            f"{path} changed while its new rows were computed, so they may be there already. Nothing was committed; the next "
            "refresh computes them again."
        )


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is below a folder, and does not lead out of it."""
    return path.startswith(f"{folder}/") and not {".", ".."} & {*path[len(folder) :].split("/")}


def _check_spelling(partitions: PartitionSet, result: RefreshResult) -> None:
    """Check that planned partitions are normalized for the types of the keys, unknown until a new table exists.

    :raises StageRejectedError: if a partition is not, because its rows would not be replaced.
    """
    try:
        spelled = normalised(partitions, result.columns)
    except ValueError as error:
        raise StageRejectedError(f"The plan of {result.token} cannot be fulfilled: {error}.") from error
    if spelled != partitions:
        raise StageRejectedError(f"The plan names {partitions}; for the types of the partition keys that is {spelled}.")


def check_rows(rows: int, result: RefreshResult) -> None:
    """Check that the files contain as many rows as the job reported."""
    if rows != result.rows:
        raise StageRejectedError(f"The staged files hold {rows} rows, the job wrote {result.rows}.")
