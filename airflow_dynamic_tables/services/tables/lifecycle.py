"""Dynamic tables in the catalog: created, and altered when their definition changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.catalog.values import (
    AnyTable,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogTable,
    JobState,
    RefreshHandler,
)
from airflow_dynamic_tables.clients.files import move_folder
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.lineage.names import former_name
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.normalised import normalised
from airflow_dynamic_tables.definitions.queries.text import same_query
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConflictError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.registry import check_held
from airflow_dynamic_tables.schedulers.registry import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.tables.owners import DEPLOYED_BY, Deployment, check_owner, deployed_by, mark, own_deployment
from airflow_dynamic_tables.services.tables.states import Asked, is_refused, state_after
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

FORGOTTEN_COMMENTS = "forgotten_comments"
"""Key in what the catalog keeps of a definition: columns whose comments are to go with the next refresh."""

ROWS_BEFORE = "rows_before"
"""Key in what the catalog keeps of a definition: the snapshot that the table had when its definition began to mean other rows."""


class Registration(StrEnum):
    """What became of a definition in the catalog."""

    CREATED = "created"
    ALTERED = "altered"
    UNCHANGED = "unchanged"
    ADOPTED = "adopted"


def create(
    workspace: Workspace, table: DynamicTable, job_state: JobState = JobState.INITIALIZING, *, takes_over: bool = False
) -> Registration:
    """Register a dynamic table in its catalog, with its database; idempotent.

    An entry that an earlier release wrote without its definition is altered once. A suspended table stays suspended.

    :param takes_over: whether it is altered though another deployment registered it.
    :raises ConfigurationError: when its name may not be one, or another installation has declared it otherwise.
    :raises CatalogError: when something else of that name exists.
    :raises SchemaEvolutionError: when the table holds rows in another format.
    """
    identifier = table.identifier
    check_names(identifier.catalog, identifier.database, identifier.table)
    catalog = workspace.catalog(identifier.catalog)
    catalog.create_database(identifier.database, CatalogDatabase(), ignore_if_exists=True)
    entry = _found_or_made(workspace, table, job_state)
    if entry is None:
        return Registration.CREATED
    if entry.refresh_handler.renamed_from:
        finish_rename(workspace, identifier)
    check_format(workspace, identifier, entry.format, table.format)
    wanted = altered(entry, table, job_state)
    notes = {} if wanted == entry and not takes_over else _notes(workspace, entry, table, takes_over=takes_over)
    if _with(wanted, notes) == entry:
        return Registration.UNCHANGED
    _tell_of_other_workflow(identifier, entry.refresh_handler, wanted.refresh_handler)
    _tell_of_other_mode(table, entry.refresh_handler)

    def changed(now: AnyTable) -> CatalogDynamicTable:
        # Somebody may suspend the table meanwhile, or deploy it from elsewhere, and commits go on.
        current = _dynamic(identifier, now)
        check_owner(current, identifier, None if takes_over else deployed_by(notes))
        return _with(altered(current, table, job_state), notes)

    catalog.change_table(identifier.path, changed)
    return Registration.ALTERED


def _found_or_made(workspace: Workspace, table: DynamicTable, job_state: JobState) -> CatalogDynamicTable | None:
    """What the catalog has of a table; ``None`` when it had nothing, and has it now as it is declared."""
    identifier = table.identifier
    catalog = workspace.catalog(identifier.catalog)
    with suppress(TableNotFoundError):
        found = catalog.get_table(identifier.path)
        if isinstance(found, CatalogTable) and found.format == table.format and not found.columns:
            # A refresh that began beside a drop made it, and was refused: without columns it never had a row.
            adopt(workspace, table)
            return None
        return _dynamic(identifier, found)
    _check_former_name(workspace, table)
    check_held(identifier, table.format, catalog.stores())
    try:
        catalog.create_table(identifier.path, _with(_entry(table, job_state), _mark(workspace, table)))
    except TableAlreadyExistsError:  # just now, maybe by another deployment, which declares it otherwise
        return _dynamic(identifier, catalog.get_table(identifier.path))
    return None


def _check_former_name(workspace: Workspace, table: DynamicTable) -> None:
    """Check that a table is not made anew whose data are there by its former name.

    :raises ConflictError: when they are.
    """
    former = former_name(table)
    if former is not None and refresh_handler(workspace, former) is not None:
        message = f"{table.identifier} is still called {former} in its catalog; its next refresh renames it, and so does"
        raise ConflictError(f"{message}: dynamic-tables apply {table.identifier}.")


def declared_part(entry: CatalogDynamicTable) -> dict[str, Any]:
    """What was declared of what the catalog keeps of a definition; nothing of an entry that an earlier release wrote."""
    notes = (FORGOTTEN_COMMENTS, ROWS_BEFORE, DEPLOYED_BY)
    return {name: value for name, value in (entry.definition or {}).items() if name not in notes}


def _notes(workspace: Workspace, entry: CatalogDynamicTable, table: DynamicTable, *, takes_over: bool) -> dict[str, Any]:
    """What the catalog keeps beside a definition that is altered: by whom, and of which rows it does not tell any more."""
    if not takes_over and altered(entry, table) == entry:
        return {}  # nothing but the state of its job
    own = _mark(workspace, table)
    if not takes_over:
        check_owner(entry, table.identifier, deployed_by(own))
    _tell_of_other_file(table.identifier, deployed_by(entry.definition), deployed_by(own))
    is_same = (entry.partition_keys, entry.format) == (table.partition_keys, table.format)
    means_the_same = is_same and same_query(entry.expanded_query, table.expanded_query)
    before = {} if means_the_same or entry.snapshot is None else {ROWS_BEFORE: entry.snapshot}
    return {**own, **before}


def _mark(workspace: Workspace, table: DynamicTable) -> dict[str, Any]:
    return mark(own_deployment(workspace.ledger.installation(), table))


def _with(entry: CatalogDynamicTable, notes: Mapping[str, Any]) -> CatalogDynamicTable:
    return replace(entry, definition={**(entry.definition or {}), **notes})


def _dynamic(identifier: TableIdentifier, entry: AnyTable) -> CatalogDynamicTable:
    if not isinstance(entry, CatalogDynamicTable):
        raise CatalogError(f"{identifier} exists and is no dynamic table; adopt it, drop it or choose another name.")
    return entry


def altered(entry: CatalogDynamicTable, table: DynamicTable, job_state: JobState = JobState.INITIALIZING) -> CatalogDynamicTable:
    """An entry with what the definition says now."""
    before = entry.refresh_handler
    # Whoever begins a refresh has looked at the state; a table that was suspended since stays so.
    asked = Asked.FORCED_REFRESH if job_state is JobState.RUNNING else Asked.REGISTER
    state = state_after(Asked.SUSPEND if job_state is JobState.SUSPENDED else asked, before.job_state)
    fresh = _entry(table, state)
    # A workflow elsewhere is let go of by services.tables.workflows, which deletes it there.
    detail = fresh.refresh_handler.job_detail if scheduler_of(entry) == DEFAULT_SCHEDULER else before.job_detail
    wanted = replace(
        fresh,
        refresh_handler=replace(fresh.refresh_handler, job_detail=detail).in_state(state, before.suspended_because),
        # What commits and other engines write is not the definition's affair.
        columns=entry.columns,
        location=entry.location,
        snapshot=entry.snapshot,
        properties=entry.properties,
    )
    notes = {name: value for name, value in (entry.definition or {}).items() if name in (ROWS_BEFORE, DEPLOYED_BY)}
    if forgotten := _forgotten_comments(entry, table):
        notes[FORGOTTEN_COMMENTS] = forgotten
    return _with(wanted, notes)


def check_format(workspace: Workspace, identifier: TableIdentifier, known: str, wanted: str) -> None:
    """Check that rows which are there are of the definition's format: in another one nobody would find them.

    :raises SchemaEvolutionError: when they are not.
    """
    if known != wanted and workspace.table(identifier, known).layout() is not None:
        raise SchemaEvolutionError(
            f"{identifier} is a table of format {known}, its definition now says {wanted}. No refresh can change that in one "
            "step: drop the table (dynamic-tables drop) and refresh it again, or give the definition another name."
        )


def _tell_of_other_file(identifier: TableIdentifier, before: Deployment | None, now: Deployment | None) -> None:
    if before is not None and now is not None and before.file != now.file:
        log.warning("%s was deployed from %s; %s declares it otherwise, and alters it.", identifier, before, now)


def _tell_of_other_workflow(identifier: TableIdentifier, before: RefreshHandler, now: RefreshHandler) -> None:
    earlier, current = (handler.job_detail.get("workflowId") for handler in (before, now))
    if earlier and earlier != current:
        log.warning(
            "%s belonged to the DAG %s, and belongs to %s from now on. Delete the former in Airflow; if definitions still make "
            "it, with another 'dag_id_prefix' or 'dag', let them agree: both would refresh the table.",
            identifier,
            earlier,
            current,
        )


def _tell_of_other_mode(table: DynamicTable, before: RefreshHandler) -> None:
    """Told once, by whoever writes the new mode into the catalog; rows, versions and readers stay as they are."""
    earlier = before.actual_refresh_mode
    if earlier is not table.mode:
        log.warning("%s changes from %s to %s: %s.", table.identifier, earlier, table.mode, table.mode_reason)


def _forgotten_comments(entry: CatalogDynamicTable, table: DynamicTable) -> list[str]:
    """Columns that had a comment in an earlier definition and have none now; it is kept until they have one again."""
    earlier = entry.definition or {}
    return sorted({*earlier.get("columns", ()), *earlier.get(FORGOTTEN_COMMENTS, ())} - {*table.comments})


def finish_rename(workspace: Workspace, identifier: TableIdentifier) -> None:
    """Let everything follow a table that got its name before; what a kill cut short is done again. Idempotent.

    :raises ConflictError: when a table of the former name was made meanwhile, so that nobody knows whose files those are.
    """
    catalog = workspace.catalog(identifier.catalog)
    entry = _dynamic(identifier, catalog.get_table(identifier.path))
    former = entry.refresh_handler.renamed_from
    if former and former != str(identifier):
        old = TableIdentifier.parse(former)
        let_go(workspace, old, identifier)
        left, here = (workspace.table(name, entry.format).folder() for name in (old, identifier))
        if left and here and left != here:  # where the name of a table says where its files are
            if catalog.table_exists(old.path) and workspace.table(old, entry.format).current() is not None:
                raise ConflictError(f"{old} was made anew while it was renamed to {identifier}: drop {old}, or rename it.")
            move_folder(left, here)
        workspace.ledger.rename_table(old, identifier)
    catalog.change_table(identifier.path, lambda now: _renamed(identifier, _dynamic(identifier, now)))


def let_go(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Take the former name from a renamed table: where renaming takes several steps, a kill between them leaves it both."""
    if refresh_handler(workspace, former) is not None:
        with suppress(TableAlreadyExistsError, TableNotFoundError):  # another table has it by now
            workspace.catalog(former.catalog).rename_table(former.path, identifier.table)


def _renamed(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    definition = entry.definition and {**entry.definition, "name": str(identifier)}
    return replace(entry, definition=definition, refresh_handler=entry.refresh_handler.being_renamed(""))


def refresh_handler(workspace: Workspace, identifier: TableIdentifier) -> RefreshHandler | None:
    """What refreshes a table, and in which state; ``None`` when the catalog does not know it as a dynamic table (yet)."""
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None
    return entry.refresh_handler if isinstance(entry, CatalogDynamicTable) else None


def why_suspended(workspace: Workspace, identifier: TableIdentifier) -> str | None:
    """A sentence without its full stop when the refreshes of a table are suspended; ``None`` when they are not."""
    handler = refresh_handler(workspace, identifier)
    if handler is None or not is_refused(Asked.REFRESH, handler.job_state):
        return None
    because = f" ({handler.suspended_because})" if handler.suspended_because else ""
    return f"{identifier} is suspended{because}; resume it to refresh again"


def adopt(workspace: Workspace, table: DynamicTable) -> Registration:
    """Make a dynamic table of a table that is there already; no data is written, and what it holds stays readable.

    :raises TableNotFoundError: when there is none.
    :raises UnsupportedError: when its catalog cannot do that, or the table does not fit the definition.
    """
    entry = _with(_entry(table, JobState.INITIALIZING), _mark(workspace, table))
    is_new = workspace.catalog(table.identifier.catalog).adopt_table(table.identifier.path, entry)
    return Registration.ADOPTED if is_new else Registration.UNCHANGED


def scheduler_of(entry: CatalogDynamicTable) -> str:
    """The name of the scheduler that has the workflow of a table."""
    return entry.refresh_handler.job_detail.get("schedulerType") or DEFAULT_SCHEDULER


def job_detail(table: DynamicTable) -> dict[str, str]:
    """How its workflow goes by, before a scheduler has said more of it."""
    return {"schedulerType": table.scheduler or DEFAULT_SCHEDULER, "endpoint": "", "workflowId": table.workflow_id}


def _entry(table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    return CatalogDynamicTable(
        columns=(),
        original_query=table.query,
        expanded_query=table.expanded_query,
        freshness=table.freshness.text,
        declared_refresh_mode=table.declared_mode,
        refresh_handler=RefreshHandler(table.mode, job_state, job_detail(table)),
        comment=table.comment,
        partition_keys=table.partition_keys,
        format=table.format,
        options={**table.options, **table.retention.options},  # where the maintenance finds it without a definition
        definition=normalised(table),
    )
