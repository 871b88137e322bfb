"""Renaming: a dynamic table gets another name, and its data, versions and history follow."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.clients.files import list_entries, move_folder
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.lineage.names import former_name
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    ConflictError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.changing.dropping import check_droppable
from airflow_dynamic_tables.services.changing.holding import held
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.registered import find_entry, look_up
from airflow_dynamic_tables.services.tables.owners import check_owner, own_deployment
from airflow_dynamic_tables.services.tables.workflows import delete_workflow
from airflow_dynamic_tables.services.workspace import Workspace, as_dynamic


@dataclass(frozen=True, slots=True)
class Renamed:
    """A table that got another name; its definition, wherever it stands, still has to say the new one."""

    before: TableIdentifier
    after: TableIdentifier


def renamed(identifier: TableIdentifier, name: str) -> TableIdentifier:
    """The full new name of a table; what its name leaves out stays as it is.

    :raises ConfigurationError: when it is no name.
    """
    try:
        return TableIdentifier.parse(name, catalog=identifier.catalog, database=identifier.database)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error


def rename(workspace: Workspace, identifier: TableIdentifier, new: TableIdentifier) -> Renamed:
    """Give a table another name within its database. What a kill cut short is finished by the same call, or the next refresh.

    :raises ConfigurationError: when the new name may not be one.
    :raises UnsupportedError: when the new name is in another catalog or database.
    :raises TableNotFoundError: when the catalog has no such dynamic table.
    :raises TableAlreadyExistsError: when the new name is taken.
    :raises ConflictError: while somebody refreshes it, or has to decide over what is in quarantine; or when files of an earlier
        table lie where those of the new name will.
    :raises SchedulerError: when another scheduler than Airflow has its workflow, and does not delete it: nothing is renamed.
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
        delete_workflow(workspace, entry)  # it refreshes the former name
        catalog.change_table(identifier.path, lambda now: _marked(identifier, as_dynamic(identifier, now)))
        catalog.rename_table(identifier.path, new.table)
        finish_rename(workspace, new)
    return Renamed(identifier, new)


def follow(workspace: Workspace, table: DynamicTable, *, takes_over: bool = False) -> Renamed | None:
    """Give a table the name that its declaration says now, if the catalog has it by the former one. Idempotent.

    :param table: one that the catalog does not have by its name.
    :param takes_over: whether it is renamed though another deployment registered it.
    :raises ConfigurationError: when another installation declared it.
    :raises ConflictError: as of :func:`rename`, like all others.
    """
    former = former_name(table)
    if former is None or not workspace.catalog(former.catalog).table_exists(former.path):
        return None
    if not takes_over:
        check_owner(workspace.dynamic_table(former), former, own_deployment(workspace.ledger.installation(), table))
    return rename(workspace, former, table.identifier)


def _is_halfway(workspace: Workspace, identifier: TableIdentifier, new: TableIdentifier) -> bool:
    """Whether the catalog has the new name already, and nothing else by the former one."""
    entry = find_entry(workspace, new)
    if entry is None or entry.refresh_handler.renamed_from != str(identifier):
        return False
    release_former_name(workspace, identifier, new)
    return find_entry(workspace, identifier) is None


def finish_rename(workspace: Workspace, identifier: TableIdentifier) -> None:
    """Let everything follow a table that got its name before; a killed rename is done again. Idempotent.

    :raises ConflictError: when a table of the former name was made meanwhile, so that it is not known whose files those are.
    """
    catalog = workspace.catalog(identifier.catalog)
    entry = workspace.dynamic_table(identifier)
    former = entry.refresh_handler.renamed_from
    if former and former != str(identifier):
        old = TableIdentifier.parse(former)
        release_former_name(workspace, old, identifier)
        left, here = (workspace.table(name, entry.format).folder() for name in (old, identifier))
        if left and here and left != here:  # where the name of a table says where its files are
            if catalog.table_exists(old.path) and workspace.table(old, entry.format).current() is not None:
                raise ConflictError(f"{old} was made again while it was renamed to {identifier}: drop {old}, or rename it.")
            move_folder(left, here)
        workspace.ledger.rename_table(old, identifier)
    catalog.change_table(identifier.path, lambda now: _renamed(identifier, as_dynamic(identifier, now)))


def release_former_name(workspace: Workspace, former: TableIdentifier, identifier: TableIdentifier) -> None:
    """Take the former name from a renamed table: where renaming takes several steps, a kill between them leaves it both."""
    if find_entry(workspace, former) is not None:
        with suppress(TableAlreadyExistsError, TableNotFoundError):  # another table has it by now
            workspace.catalog(former.catalog).rename_table(former.path, identifier.table)


def _renamed(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    definition = entry.definition and {**entry.definition, "name": str(identifier)}
    return replace(entry, definition=definition, refresh_handler=entry.refresh_handler.being_renamed(""))


def _marked(identifier: TableIdentifier, entry: CatalogDynamicTable) -> CatalogDynamicTable:
    return replace(entry, refresh_handler=entry.refresh_handler.being_renamed(str(identifier)))
