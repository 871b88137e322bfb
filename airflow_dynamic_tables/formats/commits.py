"""What every format does at a commit: it checks, numbers and records the same, tries again, and ends in one of three ways.

A commit landed, surely did not (CommitRejectedError), or nobody knows (CommitUnknownError).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_none, wait_random_exponential

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.refresh.plan import RefreshResult
from airflow_dynamic_tables.core.schedule.wall_clock import is_ahead
from airflow_dynamic_tables.core.tables.formats import streamed_formats
from airflow_dynamic_tables.core.tables.partition_values import normalised
from airflow_dynamic_tables.core.tables.partitions import PartitionSet, describe
from airflow_dynamic_tables.core.tables.schema import Rebuild
from airflow_dynamic_tables.core.tables.versions import StreamPosition, Version, recorded
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
"""Property of a version that says which refresh made it."""

NUMBER = "dynamic-tables.version"
"""Property of a version with its number."""

DATA_TIMESTAMP = "dynamic-tables.data-timestamp"
SOURCES = "dynamic-tables.sources"

PARTITIONS = "dynamic-tables.partitions"
"""Property of a version with the partitions that its commit replaced, unless they are too many."""

FENCE = "dynamic-tables.fence"
"""Property of a snapshot that is no version: it keeps the commit of that token from landing."""

COMPACTION = "dynamic-tables.compaction"
"""Property of a snapshot that is no version: the same rows as before in fewer files, made by that token."""

ATTEMPTS = 10
"""How often something is looked at while others change the same table."""

PATIENCE = 300.0
"""Seconds for which a commit is tried while others change the same table: dozens that commit at once all have their turn."""

_T = TypeVar("_T")


def until_done(
    attempt: Callable[[], _T | None],
    path: object,
    doing: str,
    *,
    pause: bool = True,
    error: type[DynamicTableError] = CommitRejectedError,
) -> _T:
    """What ``attempt`` gives as soon as that is not ``None``; it reads the table anew every time.

    :param doing: what it does, for the message.
    :param pause: wait longer and longer between two tries, so that many who commit at once do not only disturb one another.
    :param error: what is raised when it gave nothing for five minutes.
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


def told_of(
    token: str, number: int, data_timestamp: datetime | None, sources: Mapping[str, str], replaced: PartitionSet
) -> dict[str, str]:
    """What a format with properties of versions writes there; :func:`version_of` reads it."""
    partitions = recorded(replaced)
    return {
        TOKEN: token,
        NUMBER: str(number),
        **({DATA_TIMESTAMP: data_timestamp.astimezone(UTC).isoformat()} if data_timestamp else {}),
        SOURCES: json.dumps(dict(sources), sort_keys=True),
        **({PARTITIONS: json.dumps(partitions.to_plain())} if partitions is not None else {}),
    }


def version_of(told: Mapping[str, str], snapshot: str, committed_ms: int) -> Version:
    """The version that its properties tell of, among which there is a token.

    :param committed_ms: when it was committed, in milliseconds since 1970.
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
    """The error of a version that does not fit the table any more; says what to do."""
    return SchemaEvolutionError(
        f"Version {number} of {path} is from before its columns or partition keys changed, so it can be read "
        f"(show --version {number}) but not restored: change the definition back and refresh with --full-refresh, or "
        f"restore it with rollback --with-columns. {error}"
    )


def unknown(path: object, error: BaseException) -> CommitUnknownError:
    """The error of a commit whose answer was lost."""
    return CommitUnknownError(
        f"Nobody knows whether the commit of {path} landed ({error}); it is looked up before anything is deleted."
    )


def fresh_until(wanted: datetime | None, current: Version | None) -> datetime | None:
    """The time up to which a table is fresh after a commit: it never goes back, but from the future. In UTC."""
    times = [time for time in (wanted, current.data_timestamp if current is not None else None) if time is not None]
    if wanted is not None and is_ahead(max(times), now := datetime.now(UTC)) and not is_ahead(wanted, now):
        return wanted.astimezone(UTC)
    return max(times).astimezone(UTC) if times else None


def check_result(request: CommitRequest, token: str, stage: str, *, can_add: bool = False) -> None:
    """Check that a result is of that token and stage and within its plan.

    :param can_add: whether the format can add rows in one step.
    :raises StageRejectedError: says what is wrong.
    :raises UnsupportedError: when it is of a stream, and the format cannot.
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
    """Check that a table has not gone back behind the version that a refresh was planned on.

    The refresh makes what that version lacks, and says up to when the table is fresh then: on an earlier version it would leave
    out what was made in between. A later version that continues it is fine. A refresh of the whole table continues none.

    :param current: the current version of the table that is about to be changed.
    :param versions: gives its versions, without those that another engine took back.
    :raises CommitRejectedError: when it has.
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
    """Rows are added to what they follow and to nothing else; so no batch of a stream is ever there twice.

    :param position: says how far the table is of a stream.
    :raises CommitRejectedError: when the table holds something else.
    """
    if request.follows is not None and position() != request.follows:
        raise CommitRejectedError(
            f"{path} does not hold what stream {request.follows.stream} returned up to batch {request.follows.batch}: "
            "another refresh or somebody else changed its rows, or the batch is there already."
        )


def _is_below(path: str, folder: str) -> bool:
    """Whether a path lies below a folder, and does not lead out of it again."""
    return path.startswith(f"{folder}/") and not {".", ".."} & {*path[len(folder) :].split("/")}


def _check_spelling(partitions: PartitionSet, result: RefreshResult) -> None:
    """Check that planned partitions are spelled as the types of their columns spell them; of a new table nobody knew these.

    :raises StageRejectedError: when one is not, so that the rows of that partition would stay as they are.
    """
    try:
        spelled = normalised(partitions, result.columns)
    except ValueError as error:
        raise StageRejectedError(f"The plan of {result.token} cannot be fulfilled: {error}.") from error
    if spelled != partitions:
        raise StageRejectedError(f"The plan names {partitions}; for the types of the partition keys that is {spelled}.")


def check_rows(rows: int, result: RefreshResult) -> None:
    """Check that the files hold as many rows as the job wrote.

    :raises StageRejectedError: when they do not.
    """
    if rows != result.rows:
        raise StageRejectedError(f"The staged files hold {rows} rows, the job wrote {result.rows}.")
