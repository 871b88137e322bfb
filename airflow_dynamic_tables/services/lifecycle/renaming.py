"""Renaming of a dynamic table with its data, versions and history."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.files import list_entries, move_folder
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.renames import former_name
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.lifecycle.dropping import check_droppable, held
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.registered import find_entry, look_up
from airflow_dynamic_tables.services.tables.owners import check_owner, own_deployment
from airflow_dynamic_tables.services.tables.workflows import delete_workflow
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


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
    if identifier.database != new.database or identifier.catalog != new.catalog:
        raise UnsupportedError(f"{identifier} cannot become {new}: a table is renamed within its database.")
    check_names(new.table)
    if _is_halfway(workspace, identifier, new):
        finish_rename(workspace, new)
        return Renamed(identifier, new)
    registered = look_up(workspace, identifier)
    entry = as_dynamic(identifier, registered.entry)
    check_droppable(workspace, registered)
    catalog = workspace.catalog(identifier.catalog)
    if catalog.table_exists(new.path):
        raise TableAlreadyExistsError(f"{new} exists already; choose another name.")
    target = workspace.table(new, entry.format).folder()
    if target and list_entries(target):
        raise ConflictError(f"{target} holds files of an earlier table {new}; delete them, or choose another name.")
    with held(workspace, registered, "rename"):
        delete_workflow(workspace, entry)  # the workflow refreshes the former name
        catalog.change_table(identifier.path, lambda now: _marked(identifier, as_dynamic(identifier, now)))
        catalog.rename_table(identifier.path, new.table)
        finish_rename(workspace, new)
    return Renamed(identifier, new)


def follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Renamed | None:
    """Rename a table to the current name in its declaration, if the catalog has it under the former one. Idempotent.

    :param table: a table that the catalog does not have under its current name.
    :param takes_over: rename it even if another deployment registered it.
    :raises ConfigurationError: if another installation declared it.
    :raises ConflictError: as for :func:`rename`, whose other errors are raised, too.
    """
    former = former_name(table)
    if former is None or not workspace.catalog(former.catalog).table_exists(former.path):
        return None
    if not takes_over:
        check_owner(workspace.dynamic_table(former), former, own_deployment(workspace.ledger.installation(), table))
    return rename(workspace, former, table.identifier)


def _is_halfway(workspace: Workspace, identifier: TableIdentifier, new: TableIdentifier) -> bool:
    """Return whether the catalog already has the new name, and no other table under the former one."""
    entry = find_entry(workspace, new)
    if entry is None or entry.refresh_handler.renamed_from != str(identifier):
        return False
    release_former_name(workspace, identifier, new)
    return find_entry(workspace, identifier) is None


def finish_rename(workspace: Workspace, identifier: TableIdentifier) -> None:
    """Complete the rename of a table that has its new name, also after a kill. Idempotent.

    :raises ConflictError: if a table with the former name was created meanwhile, so that the owner of the files is unknown.
    """
    catalog = workspace.catalog(identifier.catalog)
    entry = workspace.dynamic_table(identifier)
    former = entry.refresh_handler.renamed_from
    if former and former != str(identifier):
        old = TableIdentifier.parse(former)
        release_former_name(workspace, old, identifier)
        left, here = (workspace.table(name, entry.format).folder() for name in (old, identifier))
        if left and here and left != here:  # if the location depends on the name of the table
            if catalog.table_exists(old.path) and workspace.table(old, entry.format).current() is not None:
                raise ConflictError(f"{old} was made again while it was renamed to {identifier}: drop {old}, or rename it.")
            move_folder(left, here)
        workspace.ledger.rename_table(old, identifier)
    catalog.change_table(identifier.path, lambda now: _renamed(identifier, as_dynamic(identifier, now)))


def release_former_name(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Rename a leftover entry of the former name away, after a kill between the steps of a rename left both names."""
    if find_entry(workspace, former) is not None:
        with suppress(TableAlreadyExistsError, TableNotFoundError):  # another table has it by now
            workspace.catalog(former.catalog).rename_table(former.path, identifier.table)


def _renamed(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    definition = entry.definition and {**entry.definition, "name": str(identifier)}
    return replace(entry, definition=definition, refresh_handler=entry.refresh_handler.being_renamed(""))


def _marked(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    return replace(entry, refresh_handler=entry.refresh_handler.being_renamed(str(identifier)))
