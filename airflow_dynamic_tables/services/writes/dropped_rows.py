"""Tables of dropped rows: the rows that the expectations of a dynamic table dropped, in a table beside it.

Each refresh has a partition of its own, which it commits before the version whose rows were dropped. If the version does not
follow, the partition names a refresh that failed, and is removed after the next commit, or by the maintenance. Therefore a
version is never without its dropped rows, and a retry does not keep them twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from uuid import NAMESPACE_URL, uuid4, uuid5

from airflow_dynamic_tables.catalog.values import ONE_OFF, CatalogTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier, dropped_rows_name
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.plan import DROPPED_KEYS, DroppedRows, RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import KEEP_DROPPED
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    CommitUnknownError,
    ConfigurationError,
    DynamicTableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.ledger.base import WITHOUT_VERSION, RefreshState
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace
from airflow_dynamic_tables.services.writes.owner_markers import write_marker
from airflow_dynamic_tables.services.writes.protocol import new_stage, staged_write
from airflow_dynamic_tables.services.writes.publishing import publish_stage, read_result

DROPPED_FROM = "airflow_dynamic_tables.dropped_from"
"""Property of a table of dropped rows: the table for which it was created."""

_RECENT = 20
"""How many refreshes are searched for failures since the last version."""

log = logging.getLogger(__name__)


def dropped_rows_of(identifier: TableIdentifier) -> TableIdentifier:
    """Return the full name of the table of the dropped rows of a table."""
    return replace(identifier, table=dropped_rows_name(identifier.table))


def find_dropped_rows(workspace: Workspace, identifier: TableIdentifier) -> RegisteredTable | None:
    """Return the table of the dropped rows of a table; ``None`` if there is none."""
    name = dropped_rows_of(identifier)
    try:
        entry = workspace.catalog(name.catalog).get_table(name.checked().path)
    except (TableNotFoundError, ValueError):  # or the name of the table is so long that it keeps no dropped rows
        return None
    if not isinstance(entry, CatalogTable) or DROPPED_FROM not in entry.properties:
        return None
    return RegisteredTable(name, entry, workspace.table(name, entry.format))


def stage_dropped_rows(workspace: Workspace, table: DynamicTable, planned: RefreshPlan, started: datetime) -> RefreshPlan:
    """Return the plan of a refresh of a table that keeps dropped rows, with a stage for them. Their table is created first.

    :raises ConfigurationError: if another table has its name.
    """
    if not any(one.action is Action.DROP for one in planned.expectations):
        return planned
    token = str(uuid5(NAMESPACE_URL, f"{planned.token}/dropped rows"))
    registered = _found_or_created(workspace, table, token)
    location = registered.lake_table.stage(token).begin()
    write_marker(workspace, registered)
    return replace(planned, dropped=DroppedRows(str(registered.identifier), token, location, started))


def _found_or_created(workspace: Workspace, table: DynamicTable, token: str) -> RegisteredTable:
    name = dropped_rows_of(table.identifier)
    found = find_dropped_rows(workspace, table.identifier)
    if found is None:
        entry = CatalogTable(
            comment=f"Rows that the expectations of {table.identifier} dropped",
            partition_keys=DROPPED_KEYS,
            format=table.format,
            properties={ONE_OFF: token, DROPPED_FROM: str(table.identifier)},
        )
        workspace.catalog(name.catalog).create_table(name.path, entry, ignore_if_exists=True)
        found = find_dropped_rows(workspace, table.identifier)
    if found is None or found.entry.format != table.format:
        raise ConfigurationError(
            f"{table.identifier} keeps the rows that its expectations drop in {name}, which is another table already; drop or "
            "rename that, or remove 'keep_dropped'."
        )
    return found


def keep_dropped_rows(workspace: Workspace, planned: RefreshPlan, result: RefreshResult, owner: str) -> None:
    """Commit the rows that the expectations of a refresh dropped, before its version.

    :param owner: that of the stage of the refresh.
    :raises DynamicTableError: if they cannot be kept; nothing of the refresh was committed.
    """
    if planned.dropped is None or not result.dropped:
        return
    writing = planned.of_dropped(planned.dropped)
    registered = workspace.look_up(TableIdentifier.parse(writing.identifier))
    rows = read_result(writing)
    layout = registered.loaded.layout()
    if layout is not None and not layout.is_kept(rows.columns, DROPPED_KEYS):
        # Earlier rows do not fit the columns of the query any more; they stay in the earlier versions.
        writing = replace(writing, partitions=WHOLE_TABLE, rebuild=layout.rebuild)
        layout.evolved(rows.columns, layout.rebuild)
    staged = registered.lake_table.stage(writing.token)
    stage = replace(new_stage(workspace, registered, writing.token, owner, writing.stage), partitions=writing.partitions)
    try:
        with staged_write(_without_listeners(workspace), Operation.KEEP, stage, staged) as write:
            write.wrote(rows)
            write.landed(write.publish(partial(publish_stage, staged, writing, rows)))
    except CommitUnknownError as error:
        message = f"The dropped rows of {planned.identifier} may not have been kept, so nothing was committed: {error}"
        raise CommitRejectedError(message) from error
    log.info("%s rows that were left out are kept in %s, dropped_by=%s.", rows.rows, registered.identifier, planned.token)


def _without_listeners(workspace: Workspace) -> Workspace:
    """Return the workspace without listeners, which expect versions of dynamic tables."""
    return replace(workspace, listeners=())


def forget_after_failures(workspace: Workspace, identifier: TableIdentifier, token: str, keep: timedelta) -> None:
    """Remove the rows kept by refreshes that failed since the last version but one. Best effort; the maintenance repeats it.

    :param token: that of the last version.
    """
    try:
        recent = [one for one in workspace.ledger.list_refreshes(identifier, _RECENT) if one.token != token]
        if any(one.state in WITHOUT_VERSION for one in takewhile(lambda one: one.state is not RefreshState.SUCCEEDED, recent)):
            forget_dropped_rows(workspace, identifier, keep)
    except (DynamicTableError, OSError):
        log.exception("Dropped rows of failed refreshes of %s were not removed; the maintenance does it.", identifier)


def retention_of(registered: RegisteredTable) -> timedelta | None:
    """Return how long dropped rows of a table are kept; ``None`` if they are not."""
    text = registered.entry.options.get(KEEP_DROPPED)
    return Freshness.parse(text).period if text else None


def forget_dropped_rows(workspace: Workspace, identifier: TableIdentifier, keep: timedelta) -> TableIdentifier | None:
    """Remove the rows kept by refreshes that ended without a version, and those that are too old.

    :return: the table of dropped rows; ``None`` if there is none.
    """
    registered = find_dropped_rows(workspace, identifier)
    if registered is None:
        return None
    layout = registered.loaded.layout()
    state = registered.loaded.read().state if layout is not None else None
    oldest = (workspace.now() - keep).astimezone(UTC).date().isoformat()
    in_vain = workspace.ledger.list_tokens(identifier, WITHOUT_VERSION)
    specs = [parse_spec(text) for text in (state.partitions if state is not None else None) or ()]
    on, by = DROPPED_KEYS
    over = [spec for spec in specs if spec and (spec[on] < oldest or spec[by] in in_vain)]
    if over and layout is not None:
        _remove(workspace, registered, over, layout.columns)
        log.info("Dropped rows of %s refreshes were removed from %s.", len(over), registered.identifier)
    return registered.identifier


def _remove(
    workspace: Workspace, registered: RegisteredTable, over: Sequence[dict[str, str]], columns: tuple[Column, ...]
) -> None:
    """Replace partitions by no rows."""
    token = f"removal-{uuid4()}"
    partitions = PartitionSet.of(over)
    staged = registered.lake_table.stage(token)
    location = staged.begin()
    nothing = RefreshResult(token, "", 0, (), columns)
    request = CommitRequest(nothing, None, partition_keys=DROPPED_KEYS, partitions=partitions, stage=location)
    stage = replace(new_stage(workspace, registered, token, "removal of dropped rows", location), partitions=partitions)
    with staged_write(_without_listeners(workspace), Operation.KEEP, stage, staged) as write:
        write.landed(write.publish(partial(staged.commit, request)))


def rename_dropped_rows(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Rename the table of dropped rows with the table. Idempotent."""
    registered = find_dropped_rows(workspace, former)
    if registered is not None:
        name = dropped_rows_of(identifier)
        workspace.catalog(name.catalog).rename_table(registered.identifier.path, name.table)
        workspace.ledger.rename_table(registered.identifier, name)


def check_renameable(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Check that the table of dropped rows can be renamed with the table.

    :raises TableAlreadyExistsError: if its new name is taken.
    """
    name = dropped_rows_of(identifier)
    if find_dropped_rows(workspace, former) is not None and workspace.catalog(name.catalog).table_exists(name.path):
        raise TableAlreadyExistsError(f"{name} exists already; drop it, or choose another name than {identifier}.")
