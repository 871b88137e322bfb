"""Registration: a declared table gets its entry in the catalog, under its present name, and its workflow."""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any

from airflow_dynamic_tables.catalog.states import STATES, Asked, is_refused
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDatabase, CatalogDynamicTable, CatalogTable, JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.lineage.names import former_name
from airflow_dynamic_tables.definitions.model import DynamicTable
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
from airflow_dynamic_tables.services.changing.holding import held
from airflow_dynamic_tables.services.changing.renaming import finish_rename, follow
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.registered import find_entry, look_up
from airflow_dynamic_tables.services.tables.entries import altered, new_entry, rows_before, with_notes
from airflow_dynamic_tables.services.tables.owners import check_owner, deployed_by, mark, own_deployment
from airflow_dynamic_tables.services.tables.workflows import keep_unpaused, schedule_workflow
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)


class Registration(StrEnum):
    """What became of a definition in the catalog."""

    CREATED = "created"
    ALTERED = "altered"
    UNCHANGED = "unchanged"
    ADOPTED = "adopted"


def ensure(
    workspace: Workspace, table: DynamicTable, asked: Asked = Asked.REGISTER, *, takes_over: bool = False
) -> tuple[CatalogDynamicTable, Registration]:
    """Bring a table's entry in its catalog to its definition; idempotent. One that is up to date costs one look at the catalog.

    A table that has its former name is renamed; the database is made if it is missing. An entry that an earlier release wrote
    without its definition is altered once. A suspended table stays suspended, and is left as it is when a refresh asks.

    :param asked: ``REFRESH`` when a refresh begins.
    :param takes_over: whether it is altered though another deployment registered it.
    :raises UnsupportedError: when the catalog cannot hold a new table's format.
    :raises ConfigurationError: when its name may not be one, or another installation has declared it otherwise.
    :raises CatalogError: when something else of that name exists.
    :raises SchemaEvolutionError: when the table holds rows in another format.
    :raises ConflictError: see :func:`~airflow_dynamic_tables.services.changing.renaming.follow`.
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
    """Whether a refresh that began beside a drop made a table, and was refused: without columns it never had a row."""
    return isinstance(entry, CatalogTable) and entry.format == table.format and not entry.columns


def _dynamic(identifier: TableIdentifier, entry: AnyTable) -> CatalogDynamicTable:
    if not isinstance(entry, CatalogDynamicTable):
        raise CatalogError(f"{identifier} exists and is no dynamic table; adopt it, drop it or choose another name.")
    return entry


def _created(
    workspace: Workspace, table: DynamicTable, asked: Asked, *, is_there: bool
) -> tuple[CatalogDynamicTable, Registration]:
    """The entry of a table that had none; of another deployment, when that was faster."""
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
    except TableAlreadyExistsError:  # just now, maybe by another deployment, which declares it otherwise
        return _dynamic(identifier, catalog.get_table(identifier.path)), Registration.UNCHANGED
    return entry, Registration.CREATED


def _altered(
    workspace: Workspace, table: DynamicTable, entry: CatalogDynamicTable, asked: Asked, *, takes_over: bool
) -> tuple[CatalogDynamicTable, Registration]:
    """The entry as its definition says now, and whether that changed it."""
    identifier = table.identifier
    # A table that is suspended from here on stays so.
    asked = Asked.FORCED_REFRESH if asked is Asked.REFRESH else asked
    check_format(workspace, identifier, entry.format, table.format)
    wanted = altered(entry, table, asked)
    notes = {} if wanted == entry and not takes_over else _notes(workspace, entry, table, takes_over=takes_over)
    if with_notes(wanted, notes) == entry:
        return entry, Registration.UNCHANGED
    _log_other_workflow(entry, wanted, identifier)
    _log_other_mode(entry, table)

    def changed(now: AnyTable) -> CatalogDynamicTable:
        # The table may be suspended meanwhile, or deployed from elsewhere, and commits go on.
        current = _dynamic(identifier, now)
        check_owner(current, identifier, None if takes_over else deployed_by(notes))
        return with_notes(altered(current, table, asked), notes)

    before = workspace.catalog(identifier.catalog).change_table(identifier.path, changed)
    return changed(before), Registration.ALTERED


def _notes(workspace: Workspace, entry: CatalogDynamicTable, table: DynamicTable, *, takes_over: bool) -> dict[str, Any]:
    """The notes that the catalog keeps beside a definition that is altered: who deployed it, and the rows before."""
    if not takes_over and altered(entry, table) == entry:
        return {}  # nothing but the state of its job
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
    """Check that rows that are there are of the definition's format: in another one they would not be found.

    :raises SchemaEvolutionError: when they are not.
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
    """Make a dynamic table of a table that is there already; no data is written, and its rows stay readable.

    :raises TableNotFoundError: when there is none.
    :raises UnsupportedError: when its catalog cannot do that, or the table does not fit the definition.
    """
    entry = with_notes(new_entry(table, JobState.INITIALIZING), _mark(workspace, table))
    is_new = workspace.catalog(table.identifier.catalog).adopt_table(table.identifier.path, entry)
    return Registration.ADOPTED if is_new else Registration.UNCHANGED


def register(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Registration:
    """Register a table by its present name, and have its scheduler refresh it. Idempotent.

    It keeps the data that it had by its former name. A new table that its scheduler refuses is not registered; what a kill leaves
    undone, the next call does.

    :param takes_over: whether that is done though another deployment registered it.
    :raises SchedulerError: as of :func:`~airflow_dynamic_tables.services.tables.workflows.schedule_workflow`.
    :raises DynamicTableError: see :func:`ensure`.
    """
    if find_entry(workspace, table.identifier) is None:
        _follow(workspace, table, takes_over=takes_over)
    if find_entry(workspace, table.identifier) is not None:
        # First, while the catalog still says which scheduler has it, and that there is something to do.
        schedule_workflow(workspace, table)
        return ensure(workspace, table, takes_over=takes_over)[1]
    _, registration = ensure(workspace, table, takes_over=takes_over)
    try:
        schedule_workflow(workspace, table)
    except (SchedulerError, ConfigurationError):
        if registration is Registration.CREATED:  # else another deployment did so just now, whose table it is
            _undo(workspace, table)
        raise
    return registration


def _follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool) -> None:
    """See :func:`follow`; the DAG of the new name goes on if the former one was not paused."""
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
    """Take a new table out of the catalog again, unless it is refreshed already: then it stays."""
    identifier = table.identifier
    try:
        registered = look_up(workspace, identifier)
        with held(workspace, registered, "create"):
            if registered.reload().current() is None:
                workspace.catalog(identifier.catalog).drop_table(identifier.path, ignore_if_not_exists=True)
    except DynamicTableError:
        log.warning("%s stays registered without a workflow.", identifier, exc_info=True)
