"""Changes of sources that the conditions of a query filter out, by partition values or by statistics of the changed files.

Rows that a condition drops have no effect on the result, so their changes need no refresh. A change counts if its files have no
statistics, or an earlier version of them has expired.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import parse_spec
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange, Filter, SomeRows, SourceFilters
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.source_changes import SourceDifference
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.queries.text import source_filters
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.formats.base import ChangedFiles
from airflow_dynamic_tables.formats.registry import changed_files, is_bound
from airflow_dynamic_tables.services.refresh.partition_mappings import types_of
from airflow_dynamic_tables.services.refresh.planning import Bound
from airflow_dynamic_tables.services.workspace import Workspace

log = logging.getLogger(__name__)

_MOST_VERSIONS = 30
"""Limit of the earlier versions of a source whose files are compared; the changes since others count."""

_NAMED = 3
"""Limit of conditions that a reason names."""


class FilteredChanges:
    """The filters of the sources of a table, and the changes that they filtered out."""

    def __init__(self, workspace: Workspace, bound: Bound, sources: Mapping[TableIdentifier, Source]) -> None:
        self._workspace = workspace
        self._bound = bound
        self._sources = sources
        self._known: dict[tuple[str, str], ChangedFiles | None] = {}
        self._excluding: dict[str, dict[Filter, None]] = {}

    @property
    def why(self) -> str:
        """Why changes have no effect, without a full stop; empty if all have one."""
        return "; ".join(self._why(source, [*filters]) for source, filters in self._excluding.items())

    def remaining(self, source: SourceBinding, token: str, difference: SourceDifference) -> SourceDifference | None:
        """Return a difference without the partitions whose changes have no effect; ``None`` if none has any.

        :param token: of the refresh since which the source differs.
        """
        filters = self._filters.get(source.identifier)
        if filters is None or not all(filters.readings) or difference.partitions is None:
            return difference
        kept = {text for text in difference.partitions if not self._is_excluded(source, filters, text, ({},))}
        if kept and (files := self._changed_files(source, filters, token, kept)) is not None:
            kept = {text for text in kept if not (text in files and self._is_excluded(source, filters, text, files[text]))}
        return replace(difference, partitions=frozenset(kept)) if kept else None

    @cached_property
    def _filters(self) -> dict[str, SourceFilters]:
        return source_filters(self._bound.table.expanded_query, types_of(self._bound.sources), self._bound.settings)

    def _is_excluded(
        self, source: SourceBinding, filters: SourceFilters, text: str, files: Collection[Mapping[str, ColumnRange]]
    ) -> bool:
        """Return whether the query returns no row of any of some files of a partition."""
        partition = {name.lower(): value for name, value in (parse_spec(text) if text else {}).items()}
        found = [filters.excluding(SomeRows(partition, self._bound.table.timezone, ranges)) for ranges in files]
        excluding = [each for each in found if each is not None]
        if len(excluding) < len(found):
            return False
        for each in excluding:
            self._excluding.setdefault(source.identifier, {}).update(dict.fromkeys(each))
        return True

    def _changed_files(
        self, source: SourceBinding, filters: SourceFilters, token: str, partitions: Collection[str]
    ) -> ChangedFiles | None:
        """Return the files that differ from the state that a refresh read; ``None`` if they are unknown, or of no use."""
        keys = {name.lower() for text in partitions if text for name in parse_spec(text)}
        columns = filters.columns - keys
        since = self._workspace.ledger.source_states(token).get(source.identifier) if columns else None
        if since is None or source.state is None:
            return None
        known = source.identifier, since.version
        if known not in self._known:
            if len(self._known) >= _MOST_VERSIONS:
                return None
            self._known[known] = None
            try:
                identifier = TableIdentifier.parse(source.identifier)
                declared = self._sources.get(identifier)
                if declared is not None and is_bound(declared):
                    stores = self._workspace.readable(identifier.catalog).stores()
                    self._known[known] = changed_files(declared, stores, columns, since, source.state)
                else:
                    table = self._workspace.existing_table(identifier).load()
                    self._known[known] = table.changed_files(columns, since, source.state)
            except (DynamicTableError, OSError) as error:
                log.info("The statistics of the changed files of %s are unknown: %s", source.identifier, error)
        return self._known[known]

    def _why(self, source: str, filters: list[Filter]) -> str:
        named = [f"{each.text} at {self._bound.place(each.offset)}" for each in filters[:_NAMED]]
        named += [f"{len(filters) - _NAMED} more"] if len(filters) > _NAMED else []
        conditions = "condition" if len(filters) == 1 else "conditions"
        return f"the changes of {source} are excluded by the {conditions} {' and '.join(named)} of the query"
