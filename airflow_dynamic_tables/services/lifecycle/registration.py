"""Registration of a declared table: its catalog entry, a rename with its data and history, and its workflow."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
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
from airflow_dynamic_tables.clients.files import list_entries, move_folder
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConfigurationError,
    ConflictError,
    DynamicTableError,
    SchedulerError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.registry import check_held
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.outcomes import Operation
from airflow_dynamic_tables.services.tables.entries import (
    altered,
    check_owner,
    declared_entry,
    deployed_by,
    new_notes,
    own_deployment,
    with_notes,
)
from airflow_dynamic_tables.services.tables.workflows import delete_workflow, keep_unpaused, schedule_workflow
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace, as_dynamic
from airflow_dynamic_tables.services.writes.dropped_rows import check_renameable, rename_dropped_rows
from airflow_dynamic_tables.services.writes.leases import check_droppable
from airflow_dynamic_tables.services.writes.protocol import held

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
    :raises UnsupportedError: if the catalog does not support a new table's format.
    :raises ConfigurationError: if its name is invalid, or another installation has declared it differently.
    :raises CatalogError: if another object with that name exists.
    :raises SchemaEvolutionError: if the table has rows in another format.
    """
    identifier = table.identifier
    catalog = workspace.catalog(identifier.catalog)
    found = _found(workspace, catalog, identifier)
    if found is None and follow(workspace, table, takes_over=takes_over) is not None:
        found = catalog.get_table(identifier.path)
    if found is None or _is_leftover(found, table):
        entry, registration = _created(workspace, catalog, table, asked, is_there=found is not None)
    else:
        entry, registration = _dynamic(identifier, found), Registration.UNCHANGED
    if registration is Registration.UNCHANGED and not is_refused(asked, entry.refresh_handler.job_state):
        entry, registration = _altered(workspace, catalog, table, entry, asked, takes_over=takes_over)
    return entry, registration


def _found(workspace: Workspace, catalog: ReadableWritableCatalog, identifier: TableIdentifier) -> AnyTable | None:
    """Return the catalog entry with that name, after a rename to it that was killed is completed; ``None`` if there is none."""
    try:
        entry = catalog.get_table(identifier.path)
    except TableNotFoundError:
        return None
    if isinstance(entry, CatalogDynamicTable) and entry.refresh_handler.renamed_from:
        return _finished_rename(workspace, catalog, identifier, entry)
    return entry


def _is_leftover(entry: AnyTable, table: DynamicTable) -> bool:
    """Return whether an entry was left by a refused refresh concurrent with a drop; without columns it never had a row."""
    return isinstance(entry, CatalogTable) and entry.format == table.format and not entry.columns


def _dynamic(identifier: TableIdentifier, entry: AnyTable) -> CatalogDynamicTable:
    if not isinstance(entry, CatalogDynamicTable):
        raise CatalogError(f"{identifier} exists and is no dynamic table; adopt it, drop it or choose another name.")
    return entry


def _created(
    workspace: Workspace, catalog: ReadableWritableCatalog, table: DynamicTable, asked: Asked, *, is_there: bool
) -> tuple[CatalogDynamicTable, Registration]:
    """Create the entry of a table; return that of another deployment if it was created first."""
    identifier = table.identifier
    check_names(identifier.catalog, identifier.database, identifier.table)
    state = None if is_there else STATES[asked][None]
    entry = declared_entry(workspace, table, state or JobState.INITIALIZING)
    if is_there:
        catalog.adopt_table(identifier.path, entry)
    else:
        catalog.create_database(identifier.database, CatalogDatabase(), ignore_if_exists=True)
        check_held(identifier, table.format, catalog.stores())
        with suppress(TableAlreadyExistsError):  # concurrently, possibly by a deployment that declares it differently
            catalog.create_table(identifier.path, entry)
            return entry, Registration.CREATED
    registration = Registration.CREATED if is_there else Registration.UNCHANGED
    return _dynamic(identifier, catalog.get_table(identifier.path)), registration


def _altered(
    workspace: Workspace,
    catalog: ReadableWritableCatalog,
    table: DynamicTable,
    entry: CatalogDynamicTable,
    asked: Asked,
    *,
    takes_over: bool,
) -> tuple[CatalogDynamicTable, Registration]:
    identifier = table.identifier
    # A table suspended concurrently stays suspended.
    asked = Asked.FORCED_REFRESH if asked is Asked.REFRESH else asked
    check_format(workspace, identifier, entry.format, table.format)
    wanted = altered(entry, table, asked)
    notes = {} if wanted == entry and not takes_over else new_notes(workspace, entry, table, takes_over=takes_over)
    if with_notes(wanted, notes) == entry:
        return entry, Registration.UNCHANGED
    _log_other_workflow(entry, wanted, identifier)
    _log_other_mode(entry, table)

    def changed(now: AnyTable) -> CatalogDynamicTable:
        # Meanwhile the table may be suspended, deployed from elsewhere, or committed to.
        current = _dynamic(identifier, now)
        check_owner(current, identifier, None if takes_over else deployed_by(notes))
        return with_notes(altered(current, table, asked), notes)

    # Some catalogs store no columns in the entry, but read them from the table.
    registered = changed(catalog.change_table(identifier.path, changed))
    return replace(registered, columns=entry.columns), Registration.ALTERED


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
    entry = declared_entry(workspace, table, JobState.INITIALIZING)
    is_new = workspace.catalog(table.identifier.catalog).adopt_table(table.identifier.path, entry)
    return Registration.ADOPTED if is_new else Registration.UNCHANGED


def register(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Registration:
    """Register a table under its current name, and schedule its refreshes. Idempotent.

    A renamed table keeps its data. A new table that its scheduler refuses is not registered. After a kill, the next call
    completes the registration.
    """
    entry = workspace.find_entry(table.identifier)
    if entry is None:
        _follow(workspace, table, takes_over=takes_over)
        entry = workspace.find_entry(table.identifier)
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
    former = table.former_name()
    before = workspace.find_entry(former) if former is not None else None
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
        registered = workspace.look_up(identifier)
        with held(workspace, registered, "create"):
            if registered.reload().current() is None:
                workspace.catalog(identifier.catalog).drop_table(identifier.path, ignore_if_not_exists=True)
    except DynamicTableError:
        log.warning("%s stays registered without a workflow.", identifier, exc_info=True)


@dataclass(frozen=True, slots=True)
class Renamed:
    """A renamed table. Its definition must still be changed to the new name."""

    before: TableIdentifier
    after: TableIdentifier


def renamed(identifier: TableIdentifier, name: str) -> TableIdentifier:
    """Return the full new name of a table; omitted parts are those of the current name.

    :raises ConfigurationError: if it is not a valid name.
    """
    try:
        return TableIdentifier.parse(name, catalog=identifier.catalog, database=identifier.database)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error


def rename(workspace: Workspace, identifier: TableIdentifier, new: TableIdentifier) -> Renamed:
    """Rename a table within its database. A rename that was killed is completed by the same call, or by the next refresh.

    :raises ConfigurationError: if the new name is invalid.
    :raises UnsupportedError: if the new name is in another catalog or database.
    :raises TableNotFoundError: if the catalog has no such dynamic table.
    :raises TableAlreadyExistsError: if the new name is taken.
    :raises ConflictError: if the table is being refreshed, a refresh in quarantine requires a decision, or the folder of the new
        name contains files of an earlier table.
    :raises SchedulerError: if a scheduler other than Airflow does not delete its workflow; nothing is renamed.
    """
    _check_new_name(identifier, new)
    entry = workspace.find_entry(new)
    if entry is not None and entry.refresh_handler.renamed_from == str(identifier):
        release_former_name(workspace, identifier, new)
        if workspace.find_entry(identifier) is None:
            _finished_rename(workspace, workspace.catalog(new.catalog), new, entry)
            return Renamed(identifier, new)
    return _renamed_to(workspace, workspace.look_up(identifier), new)


def _check_new_name(identifier: TableIdentifier, new: TableIdentifier) -> None:
    if identifier.database != new.database or identifier.catalog != new.catalog:
        raise UnsupportedError(f"{identifier} cannot become {new}: a table is renamed within its database.")
    check_names(new.table)


def _renamed_to(workspace: Workspace, registered: RegisteredTable, new: TableIdentifier) -> Renamed:
    identifier = registered.identifier
    entry = as_dynamic(identifier, registered.entry)
    check_droppable(workspace, identifier)
    catalog = workspace.catalog(identifier.catalog)
    if catalog.table_exists(new.path):
        raise TableAlreadyExistsError(f"{new} exists already; choose another name.")
    check_renameable(workspace, identifier, new)
    target = workspace.table(new, entry.format).folder()
    if target and list_entries(target):
        raise ConflictError(f"{target} holds files of an earlier table {new}; delete them, or choose another name.")
    with held(workspace, registered, "rename", Operation.RENAME):
        delete_workflow(workspace, entry)  # the workflow refreshes the former name
        former = str(identifier)
        workspace.change(identifier, lambda now: replace(now, refresh_handler=now.refresh_handler.being_renamed(former)))
        catalog.rename_table(identifier.path, new.table)
        finish_rename(workspace, new)
    return Renamed(identifier, new)


def follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Renamed | None:
    """Rename a table to the current name in its declaration, if the catalog has it under the former one. Idempotent.

    :param table: a table that the catalog does not have under its current name.
    :raises ConfigurationError: if another installation declared it.
    :raises ConflictError: as for :func:`rename`, whose other errors are raised, too.
    """
    former = table.former_name()
    if former is None or not workspace.catalog(former.catalog).table_exists(former.path):
        return None
    registered = workspace.look_up(former)
    entry = as_dynamic(former, registered.entry)
    if not takes_over:
        check_owner(entry, former, own_deployment(workspace.ledger.installation(), table))
    _check_new_name(former, table.identifier)
    return _renamed_to(workspace, registered, table.identifier)


def finish_rename(workspace: Workspace, identifier: TableIdentifier) -> None:
    """Complete the rename of a table that has its new name, also after a kill. Idempotent.

    :raises ConflictError: if a table with the former name was created meanwhile, so that the owner of the files is unknown.
    """
    _finished_rename(workspace, workspace.catalog(identifier.catalog), identifier, workspace.dynamic_table(identifier))


def _finished_rename(
    workspace: Workspace, catalog: ReadableWritableCatalog, identifier: TableIdentifier, entry: CatalogDynamicTable
) -> CatalogDynamicTable:
    """Complete a rename as :func:`finish_rename` does, and return the entry without the former name."""
    former = entry.refresh_handler.renamed_from
    if former and former != str(identifier):
        old = TableIdentifier.parse(former)
        release_former_name(workspace, old, identifier)
        before = workspace.table(old, entry.format)
        left, here = before.folder(), workspace.table(identifier, entry.format).folder()
        if left and here and left != here:  # if the location depends on the name of the table
            if catalog.table_exists(old.path) and before.current() is not None:
                raise ConflictError(f"{old} was made again while it was renamed to {identifier}: drop {old}, or rename it.")
            move_folder(left, here)
        rename_dropped_rows(workspace, old, identifier)
        workspace.ledger.rename_table(old, identifier)
    return _renamed(identifier, workspace.change(identifier, partial(_renamed, identifier)))


def release_former_name(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Rename a leftover entry of the former name away, after a kill between the steps of a rename left both names."""
    if workspace.find_entry(former) is not None:
        with suppress(TableAlreadyExistsError, TableNotFoundError):  # another table has it by now
            workspace.catalog(former.catalog).rename_table(former.path, identifier.table)


def _renamed(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    definition = entry.definition and {**entry.definition, "name": str(identifier)}
    return replace(entry, definition=definition, refresh_handler=entry.refresh_handler.being_renamed(""))
