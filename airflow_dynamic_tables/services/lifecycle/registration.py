"""Registration of a declared table: its catalog entry, a rename from its former name, and its workflow."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.catalog.values import (
    STATES,
    AnyTable,
    Asked,
    CatalogDatabase,
    CatalogDynamicTable,
    CatalogTable,
    JobState,
    is_refused,
)
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.renames import former_name
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConfigurationError,
    DynamicTableError,
    SchedulerError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.registry import check_held
from airflow_dynamic_tables.services.lifecycle.dropping import held
from airflow_dynamic_tables.services.lifecycle.renaming import finish_rename, follow
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.registered import find_entry, look_up
from airflow_dynamic_tables.services.tables.entries import altered, new_entry, rows_before, with_notes
from airflow_dynamic_tables.services.tables.owners import check_owner, deployed_by, mark, own_deployment
from airflow_dynamic_tables.services.tables.workflows import keep_unpaused, schedule_workflow
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


class Registration(StrEnum):
    """The result of registering a definition in the catalog."""

    CREATED = "created"
    ALTERED = "altered"
    UNCHANGED = "unchanged"
    ADOPTED = "adopted"


def ensure(
    workspace: Workspace, table: DynamicTable, asked: Asked = Asked.REGISTER, *, takes_over: bool = False
) -> tuple[CatalogDynamicTable, Registration]:
    """Update a table's catalog entry to its definition; idempotent. If it is up to date, this takes one catalog read.

    A table that has its former name is renamed; a missing database is created. An entry that an earlier release wrote without its
    definition is altered once. A suspended table stays suspended, and is not altered by a refresh.

    :param asked: ``REFRESH`` when a refresh begins.
    :param takes_over: alter the table even if another deployment registered it.
    :raises UnsupportedError: if the catalog does not support a new table's format.
    :raises ConfigurationError: if its name is invalid, or another installation has declared it differently.
    :raises CatalogError: if another object with that name exists.
    :raises SchemaEvolutionError: if the table has rows in another format.
    :raises ConflictError: see :func:`~airflow_dynamic_tables.services.lifecycle.renaming.follow`.
    """
    identifier = table.identifier
    found = _found(workspace, identifier)
    if found is None and follow(workspace, table, takes_over=takes_over) is not None:
        found = _found(workspace, identifier)
    if found is None or _is_leftover(found, table):
        entry, registration = _created(workspace, table, asked, is_there=found is not None)
    else:
        entry, registration = _dynamic(identifier, found), Registration.UNCHANGED
    if registration is Registration.UNCHANGED and not is_refused(asked, entry.refresh_handler.job_state):
        entry, registration = _altered(workspace, table, entry, asked, takes_over=takes_over)
    return entry, registration


def _found(workspace: Workspace, identifier: TableIdentifier) -> AnyTable | None:
    try:
        entry = workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None
    if isinstance(entry, CatalogDynamicTable) and entry.refresh_handler.renamed_from:
        finish_rename(workspace, identifier)
        return workspace.dynamic_table(identifier)
    return entry


def _is_leftover(entry: AnyTable, table: DynamicTable) -> bool:
    """Return whether an entry was left by a refused refresh concurrent with a drop; without columns it never had a row."""
    return isinstance(entry, CatalogTable) and entry.format == table.format and not entry.columns


def _dynamic(identifier: TableIdentifier, entry: AnyTable) -> CatalogDynamicTable:
    if not isinstance(entry, CatalogDynamicTable):
        raise CatalogError(f"{identifier} exists and is no dynamic table; adopt it, drop it or choose another name.")
    return entry


def _created(
    workspace: Workspace, table: DynamicTable, asked: Asked, *, is_there: bool
) -> tuple[CatalogDynamicTable, Registration]:
    """Create the entry of a table; return that of another deployment if it was created first."""
    identifier = table.identifier
    check_names(identifier.catalog, identifier.database, identifier.table)
    catalog = workspace.catalog(identifier.catalog)
    if is_there:
        adopt(workspace, table)
        return _dynamic(identifier, catalog.get_table(identifier.path)), Registration.CREATED
    catalog.create_database(identifier.database, CatalogDatabase(), ignore_if_exists=True)
    check_held(identifier, table.format, catalog.stores())
    entry = with_notes(new_entry(table, STATES[asked][None] or JobState.INITIALIZING), _mark(workspace, table))
    try:
        catalog.create_table(identifier.path, entry)
    except TableAlreadyExistsError:  # created concurrently, possibly by another deployment that declares it differently
        return _dynamic(identifier, catalog.get_table(identifier.path)), Registration.UNCHANGED
    return entry, Registration.CREATED


def _altered(
    workspace: Workspace, table: DynamicTable, entry: CatalogDynamicTable, asked: Asked, *, takes_over: bool
) -> tuple[CatalogDynamicTable, Registration]:
    """Update an entry to its definition; return it and whether it changed."""
    identifier = table.identifier
    # A table suspended concurrently stays suspended.
    asked = Asked.FORCED_REFRESH if asked is Asked.REFRESH else asked
    check_format(workspace, identifier, entry.format, table.format)
    wanted = altered(entry, table, asked)
    notes = {} if wanted == entry and not takes_over else _notes(workspace, entry, table, takes_over=takes_over)
    if with_notes(wanted, notes) == entry:
        return entry, Registration.UNCHANGED
    _log_other_workflow(entry, wanted, identifier)
    _log_other_mode(entry, table)

    def changed(now: AnyTable) -> CatalogDynamicTable:
        # Meanwhile the table may be suspended, deployed from elsewhere, or committed to.
        current = _dynamic(identifier, now)
        check_owner(current, identifier, None if takes_over else deployed_by(notes))
        return with_notes(altered(current, table, asked), notes)

    before = workspace.catalog(identifier.catalog).change_table(identifier.path, changed)
    return changed(before), Registration.ALTERED


def _notes(workspace: Workspace, entry: CatalogDynamicTable, table: DynamicTable, *, takes_over: bool) -> dict[str, Any]:
    """Return the notes beside an altered definition: its deployment, and the snapshot before the rows changed."""
    if not takes_over and altered(entry, table) == entry:
        return {}  # only the state of its job has changed
    own = _mark(workspace, table)
    if not takes_over:
        check_owner(entry, table.identifier, deployed_by(own))
    before, now = deployed_by(entry.definition), deployed_by(own)
    if before is not None and now is not None and before.file != now.file:
        log.warning("%s was deployed from %s; %s declares it otherwise, and alters it.", table.identifier, before, now)
    return {**own, **rows_before(entry, table)}


def _mark(workspace: Workspace, table: DynamicTable) -> dict[str, Any]:
    return mark(own_deployment(workspace.ledger.installation(), table))


def check_format(workspace: Workspace, identifier: TableIdentifier, known: str, wanted: str) -> None:
    """Check that existing rows have the definition's format, because they would not be found in another one.

    :raises SchemaEvolutionError: if they do not.
    """
    if known != wanted and workspace.table(identifier, known).layout() is not None:
        raise SchemaEvolutionError(
            f"{identifier} is a table of format {known}, its definition now says {wanted}. No refresh can change that in one "
            "step: drop the table (dynamic-tables drop) and refresh it again, or give the definition another name."
        )


def _log_other_workflow(entry: CatalogDynamicTable, wanted: CatalogDynamicTable, identifier: TableIdentifier) -> None:
    earlier, current = (one.refresh_handler.job_detail.get("workflowId") for one in (entry, wanted))
    if earlier and earlier != current:
        log.warning(
            "%s belonged to the DAG %s, and belongs to %s from now on. Delete the former in Airflow; if definitions still make "
            "it, with another 'dag_id_prefix' or 'dag', let them agree: both would refresh the table.",
            *(identifier, earlier, current),
        )


def _log_other_mode(entry: CatalogDynamicTable, table: DynamicTable) -> None:
    earlier = entry.refresh_handler.actual_refresh_mode
    if earlier is not table.mode:
        log.warning("%s changes from %s to %s: %s.", table.identifier, earlier, table.mode, table.mode_reason)


def adopt(workspace: Workspace, table: DynamicTable) -> Registration:
    """Convert an existing table to a dynamic table. No data is written, and its rows stay readable.

    :raises TableNotFoundError: if the table does not exist.
    :raises UnsupportedError: if its catalog does not support this, or the table does not fit the definition.
    """
    entry = with_notes(new_entry(table, JobState.INITIALIZING), _mark(workspace, table))
    is_new = workspace.catalog(table.identifier.catalog).adopt_table(table.identifier.path, entry)
    return Registration.ADOPTED if is_new else Registration.UNCHANGED


def register(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Registration:
    """Register a table under its current name, and schedule its refreshes. Idempotent.

    A renamed table keeps its data. A new table that its scheduler refuses is not registered. After a kill, the next call
    completes the registration.

    :param takes_over: do so even if another deployment registered the table.
    :raises SchedulerError: as for :func:`~airflow_dynamic_tables.services.tables.workflows.schedule_workflow`.
    :raises DynamicTableError: see :func:`ensure`.
    """
    entry = find_entry(workspace, table.identifier)
    if entry is None:
        _follow(workspace, table, takes_over=takes_over)
        entry = find_entry(workspace, table.identifier)
    if entry is not None:
        # First, while the catalog still has the previous scheduler and definition.
        schedule_workflow(workspace, table)
        return ensure(workspace, table, takes_over=takes_over)[1]
    _, registration = ensure(workspace, table, takes_over=takes_over)
    try:
        schedule_workflow(workspace, table)
    except (SchedulerError, ConfigurationError):
        if registration is Registration.CREATED:  # otherwise another deployment created the table concurrently and owns it
            _undo(workspace, table)
        raise
    return registration


def _follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool) -> None:
    """Rename as :func:`follow` does, and unpause the new DAG if the former one was not paused."""
    former = former_name(table)
    before = find_entry(workspace, former) if former is not None else None
    if follow(workspace, table, takes_over=takes_over) is None or before is None:
        return
    try:
        told = keep_unpaused(workspace, before.refresh_handler.job_detail, table)
    except (SchedulerError, ConfigurationError) as error:
        told = f"The DAG {table.workflow_id} of the new name was not unpaused: {error}"
    if told:
        log.warning("%s", told)


def _undo(workspace: Workspace, table: DynamicTable) -> None:
    """Remove a new table from the catalog again, unless it already has a version."""
    identifier = table.identifier
    try:
        registered = look_up(workspace, identifier)
        with held(workspace, registered, "create"):
            if registered.reload().current() is None:
                workspace.catalog(identifier.catalog).drop_table(identifier.path, ignore_if_not_exists=True)
    except DynamicTableError:
        log.warning("%s stays registered without a workflow.", identifier, exc_info=True)
