"""Lineage of a refresh: the datasets that it read and wrote, with their names in OpenLineage, versions and columns."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogView, is_own
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.lineage import ColumnOrigin, DatasetName, asset_dataset, dataset_at
from airflow_dynamic_tables.core.refresh.reasons import WRITE_NOTHING
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.queries.text import column_origins
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.saved_costs import compared_refreshes
from airflow_dynamic_tables.services.tables.source_reads import stretch
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_COMPARED = 200
"""Number of the latest refreshes among which the last complete one is looked for."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table as read or written by a refresh; the first of its ``names`` is that of its data, the others are symlinks."""

    names: tuple[DatasetName, ...]
    columns: tuple[Column, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True)
class RefreshLineage:
    """The lineage of a refresh. There is no ``output`` if it made no version.

    ``inputs``, by full table name, are the tables that the query read, and those that its expectations refer to.

    ``origins`` are those of each column of the output, as far as they are known. ``saved_seconds`` is the difference from the
    last complete refresh, if there was one.
    """

    refresh: Refresh
    inputs: Mapping[str, Dataset]
    query: str | None = None
    output: Dataset | None = None
    origins: Mapping[str, tuple[ColumnOrigin, ...]] = field(default_factory=dict)
    saved_seconds: float | None = None


def refresh_lineages(workspace: Workspace, tokens: Sequence[str], query: str | None = None) -> list[RefreshLineage]:
    """Return the lineage of each refresh that the ledger has; what is the same for several of them is read once.

    :param query: that of a table which does not keep it in its catalog.
    """
    reader = _Reader(workspace, query)
    refreshes = (workspace.ledger.get_refresh(token) for token in tokens)
    return [reader.lineage(refresh) for refresh in refreshes if refresh is not None]


def unchanged_token(workspace: Workspace, table: TableIdentifier) -> str | None:
    """Return the token of the NO_DATA refreshes of the current version of a table; ``None`` without a version."""
    version = workspace.look_up(table).current()
    return stretch(version.token) if version is not None else None


class _Reader:
    """Reads the lineage of refreshes, each table from its catalog only once."""

    def __init__(self, workspace: Workspace, query: str | None) -> None:
        self._workspace = workspace
        self._query = query
        self._entries: dict[TableIdentifier, AnyTable | None] = {}
        self._latest: dict[TableIdentifier, list[Refresh]] = {}

    def lineage(self, refresh: Refresh) -> RefreshLineage:
        """Return the lineage of a refresh."""
        entry = self._entry(refresh.table)
        written, query = self._query, self._query
        if isinstance(entry, CatalogDynamicTable):
            written, query = entry.original_query, entry.expanded_query
        inputs = self._inputs(refresh)
        is_over = refresh.state in (RefreshState.SUCCEEDED, RefreshState.UNDONE)
        has_version = is_over and refresh.version is not None and refresh.action not in WRITE_NOTHING
        output = self._dataset(refresh.table, None, refresh.snapshot) if has_version else None
        return RefreshLineage(
            refresh=refresh,
            inputs=inputs,
            query=written,
            output=output,
            origins=_origins(query, inputs, output) if query is not None and output is not None else {},
            saved_seconds=self._saved_seconds(refresh),
        )

    def _entry(self, identifier: TableIdentifier) -> AnyTable | None:
        """Return what the catalog has of a table; ``None`` if it does not have it, or cannot be read."""
        if identifier not in self._entries:
            try:
                self._entries[identifier] = self._workspace.readable(identifier.catalog).get_table(identifier.path)
            except DynamicTableError as error:
                log.debug("%s is not in its catalog: %s", identifier, error)
                self._entries[identifier] = None
        return self._entries[identifier]

    def _inputs(self, refresh: Refresh) -> dict[str, Dataset]:
        token = refresh.token.removesuffix(stretch(""))  # NO_DATA: of the version that stays
        states = self._workspace.ledger.source_states(token)
        inputs = {}
        for name, version in {**refresh.referenced, **refresh.sources}.items():
            location = states[name].location if name in states else None
            inputs[name] = self._dataset(TableIdentifier.parse(name), location, version)
        return inputs

    def _dataset(self, identifier: TableIdentifier, location: str | None, version: str | None) -> Dataset:
        """Return a table as a dataset.

        :param location: where its data are if the catalog does not say it.
        """
        entry, own = self._entry(identifier), (asset_dataset(identifier),)
        if entry is None:
            return Dataset((dataset_at(location),) if location is not None else own, version=version)
        if isinstance(entry, CatalogView):
            return Dataset(own, entry.columns, version)
        location = entry.location or location
        if location is None and is_own(entry):
            location = self._workspace.table(identifier, entry.format).folder()
        names = self._workspace.readable(identifier.catalog).dataset_names(identifier.path, location)
        return Dataset((*names, *own) if is_own(entry) or not names else names, entry.columns, version)

    def _saved_seconds(self, refresh: Refresh) -> float | None:
        if refresh.table not in self._latest:
            self._latest[refresh.table] = self._workspace.ledger.list_refreshes(refresh.table, _COMPARED)
        compared = compared_refreshes(self._latest[refresh.table])
        one = next((each for each in compared if each.token == refresh.token), None)
        if one is None or one.full_seconds is None:
            return None
        return round((one.full_seconds - one.seconds) / one.refreshes, 3)


def _origins(query: str, inputs: Mapping[str, Dataset], output: Dataset) -> dict[str, tuple[ColumnOrigin, ...]]:
    columns = {name: [column.name for column in dataset.columns] for name, dataset in inputs.items()}
    found = column_origins(query, columns)
    return {column.name: found[name] for column in output.columns if (name := column.name.lower()) in found and found[name]}
