"""Catalog entries of dynamic tables, built from their definitions, and the deployments that own them.

A deployment is an installation, identified by its state database, and the file that declares the table. A moved file, another
checkout and a restored state database are the same deployment; a second Airflow is another one.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.catalog.values import Asked, CatalogDynamicTable, JobState, RefreshHandler, state_after
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.versions import KEEP_DROPPED
from airflow_dynamic_tables.definitions.cache import normalised
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import same_query
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.schedulers.base import DEFAULT_SCHEDULER
from airflow_dynamic_tables.services.workspace import RegisteredTable, Workspace

log = logging.getLogger(__name__)

FORGOTTEN_COMMENTS = "forgotten_comments"
"""Key in the catalog's definition: columns whose comments the next refresh removes."""

ROWS_BEFORE = "rows_before"
"""Key in the catalog's definition: the token of the table's version before its definition changed the rows.

Entries may still have its snapshot instead, which fences and compactions change without a new version.
"""


def new_entry(table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    """Return the catalog entry of a table that is not registered yet."""
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
        # The maintenance reads them there without a definition.
        options={**table.options, **table.retention.options, **_retention_of_dropped(table.keep_dropped)},
        definition=normalised(table),
    )


def _retention_of_dropped(keep: timedelta | None) -> dict[str, str]:
    """Return the option that says how long dropped rows are kept."""
    return {KEEP_DROPPED: Freshness(int(keep.total_seconds())).text} if keep is not None else {}


def declared_entry(workspace: Workspace, table: DynamicTable, job_state: JobState) -> CatalogDynamicTable:
    """Return the entry with which this installation registers a table."""
    return with_notes(new_entry(table, job_state), mark(own_deployment(workspace.ledger.installation(), table)))


def registered_or_new(workspace: Workspace, table: DynamicTable) -> RegisteredTable:
    """Return a table as registered, or as its first refresh would register it; changes nothing.

    :raises UnsupportedError: if the catalog does not support the table's format.
    """
    entry = workspace.find_entry(table.identifier) or new_entry(table, JobState.INITIALIZING)
    return RegisteredTable(table.identifier, entry, workspace.table(table.identifier, table.format, table.atomicity))


def altered(entry: CatalogDynamicTable, table: DynamicTable, asked: Asked = Asked.REGISTER) -> CatalogDynamicTable:
    """Update an entry with the current definition, and keep the parts written by commits and other engines."""
    before = entry.refresh_handler
    # services.tables.workflows deletes a workflow of another scheduler and then updates this.
    detail = job_detail(table) if scheduler_of(entry) == DEFAULT_SCHEDULER else before.job_detail
    state = state_after(asked, before.job_state)
    handler = RefreshHandler(table.mode, state, detail).in_state(state, before.suspended_because)
    notes = {name: value for name, value in (entry.definition or {}).items() if name in (ROWS_BEFORE, DEPLOYED_BY)}
    if forgotten := _forgotten(entry, table):
        notes[FORGOTTEN_COMMENTS] = forgotten
    wanted = replace(
        new_entry(table, state),
        refresh_handler=handler,
        columns=entry.columns,
        location=entry.location,
        snapshot=entry.snapshot,
        properties=entry.properties,
    )
    return with_notes(wanted, notes)


def changes_rows(entry: CatalogDynamicTable, table: DynamicTable) -> bool:
    """Return whether a definition makes other rows than an entry."""
    is_same = (entry.partition_keys, entry.format) == (table.partition_keys, table.format)
    return not (is_same and same_query(entry.expanded_query, table.expanded_query))


def with_notes(entry: CatalogDynamicTable, notes: Mapping[str, Any]) -> CatalogDynamicTable:
    """Add notes to the definition of an entry."""
    return replace(entry, definition={**(entry.definition or {}), **notes})


def declared_part(entry: CatalogDynamicTable) -> dict[str, Any]:
    """Return the definition of an entry without notes; empty if an earlier release wrote it."""
    notes = (FORGOTTEN_COMMENTS, ROWS_BEFORE, DEPLOYED_BY)
    return {name: value for name, value in (entry.definition or {}).items() if name not in notes}


def new_notes(workspace: Workspace, entry: CatalogDynamicTable, table: DynamicTable, *, takes_over: bool) -> dict[str, Any]:
    """Return the notes beside an altered definition: its deployment, and the version before the rows changed.

    :raises ConfigurationError: as for :func:`check_owner`, unless the table is taken over.
    """
    if not takes_over and altered(entry, table) == entry:
        return {}  # only the state of its job has changed
    own = own_deployment(workspace.ledger.installation(), table)
    if not takes_over:
        check_owner(entry, table.identifier, own)
    before = deployed_by(entry.definition)
    if before is not None and before.file != own.file:
        log.warning("%s was deployed from %s; %s declares it otherwise, and alters it.", table.identifier, before, own)
    if not changes_rows(entry, table):
        return mark(own)
    current = workspace.table(table.identifier, entry.format).current()
    return mark(own) if current is None else {**mark(own), ROWS_BEFORE: current.token}


def forgotten_comments(entry: CatalogDynamicTable) -> dict[str, str]:
    """Return empty comments for the columns whose comments were removed from the definition."""
    return dict.fromkeys((entry.definition or {}).get(FORGOTTEN_COMMENTS, ()), "")


def _forgotten(entry: CatalogDynamicTable, table: DynamicTable) -> list[str]:
    """Return columns that had a comment in an earlier definition and have none now; kept until they have one again."""
    earlier = entry.definition or {}
    return sorted({*earlier.get("columns", ()), *earlier.get(FORGOTTEN_COMMENTS, ())} - {*table.comments})


def scheduler_of(entry: CatalogDynamicTable) -> str:
    """Return the name of the scheduler of a table's workflow."""
    return entry.refresh_handler.job_detail.get("schedulerType") or DEFAULT_SCHEDULER


def job_detail(table: DynamicTable) -> dict[str, str]:
    """Return the reference to a table's workflow before a scheduler has completed it."""
    return {"schedulerType": table.scheduler or DEFAULT_SCHEDULER, "endpoint": "", "workflowId": table.workflow_id}


DEPLOYED_BY = "deployed_by"
"""Key in the catalog's definition: the deployment that wrote it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An installation, and the host and file from which it deployed a table."""

    installation: str
    host: str
    file: str

    def __str__(self) -> str:
        """Return the deployment for display."""
        return f"{self.file} on {self.host} (installation {self.installation})"


def own_deployment(installation: str, table: DynamicTable) -> Deployment:
    """Return the deployment of this installation that declares a table."""
    return Deployment(installation, socket.gethostname(), str(table.path.absolute()))


def deployed_by(definition: Mapping[str, Any] | None) -> Deployment | None:
    """Return the deployment of a table; ``None`` if not recorded, for example by an earlier release."""
    kept = (definition or {}).get(DEPLOYED_BY)
    names = ("installation", "host", "file")
    return Deployment(*(str(kept.get(name, "")) for name in names)) if isinstance(kept, Mapping) else None


def mark(deployment: Deployment) -> dict[str, Any]:
    """Return the record of a deployment for the catalog's definition."""
    return {DEPLOYED_BY: asdict(deployment)}


def check_owner(entry: CatalogDynamicTable, identifier: TableIdentifier, own: Deployment | None) -> None:
    """Check that a deployment may alter a table.

    :param own: ``None`` if no declared property is altered.
    :raises ConfigurationError: if another installation deployed it; the message names both.
    """
    owner = deployed_by(entry.definition)
    if owner is not None and own is not None and owner.installation != own.installation:
        raise ConfigurationError(claimed(identifier, owner, own))


def rival(entry: CatalogDynamicTable, table: DynamicTable, own: Deployment) -> Deployment | None:
    """Return another deployment that declares a table: another installation, or another existing file that names it."""
    owner = deployed_by(entry.definition)
    if owner is None:
        return None
    if owner.installation != own.installation:
        return owner
    is_other = owner.host == own.host and not _is_copy(owner.file, table) and not _is_below(owner.file, table)
    return owner if is_other and _names(owner.file, table.identifier) else None


def claimed(identifier: TableIdentifier, owner: Deployment, own: Deployment) -> str:
    """Return a message on how to resolve that two deployments declare a table."""
    return (
        f"{identifier} is declared by two: it was deployed from {owner}, and {own} declares it, too. Take it out of one of them. "
        f"If the former is gone, take it over: dynamic-tables apply {identifier} --take-over."
    )


def is_declared_elsewhere(owner: Deployment, identifier: TableIdentifier, root: Path) -> bool:
    """Return whether the file that deployed a table still names it and is neither below ``root`` nor a copy of a file there."""
    file, root = Path(owner.file), root.absolute()
    below = [file.parts[place + 1 :] for place, part in enumerate(file.parts) if part == root.name]
    is_own = file.is_relative_to(root) or any(root.joinpath(*rest).exists() for rest in below)
    return not is_own and _names(owner.file, identifier)


def _is_below(file: str, table: DynamicTable) -> bool:
    """Return whether a file is in the definition folder that now declares the table; a folder declares no table twice."""
    root = table.path.absolute().parents[max(len(Path(table.file).parts) - 2, 0)]
    return Path(file).is_relative_to(root)


def _is_copy(file: str, table: DynamicTable) -> bool:
    """Return whether a file is the one that now declares a table, or has the same relative path in a copy of the definitions.

    A copy is for example another checkout, or another version of a bundle.
    """
    return f"/{file}".endswith(f"/{table.file}")


def _names(file: str, identifier: TableIdentifier) -> bool:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"(?<!\w){re.escape(identifier.table)}(?!\w)", text) is not None
