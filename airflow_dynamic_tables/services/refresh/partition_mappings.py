"""How the partitions of sources determine those of a table, by its query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial

from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.partitions import PartitionSet, parse_spec
from airflow_dynamic_tables.core.refresh.key_sources import KeyColumn, KeySource, Lineage, PartitionMapping, columns_of
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import column_types
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.text import lineage
from airflow_dynamic_tables.services.source_progress import with_files


class PartitionMappings:
    """The mappings of the partitions of each source, and of the table itself, to those of the table.

    :param table: with inlined views.
    :param sources: its bound sources.
    :param columns: of the table; none before its first commit.
    """

    def __init__(self, table: DynamicTable, sources: Sequence[SourceBinding], columns: Sequence[Column]) -> None:
        self._table = table
        self._sources = sources
        self._columns = columns
        self._found: dict[str, PartitionMapping] = {}
        self._every: dict[tuple[str, ...], list[dict[str, str]] | None] = {}
        keys = {key: KeySource((KeyColumn(key.lower()),)) for key in table.partition_keys}
        self.itself = PartitionMapping(keys, {column.name: column.type for column in columns})

    def of(self, source: str) -> PartitionMapping:
        """Return the mapping of a source."""
        if source not in self._found:
            found = ((key, lineage.sources.get(source)) for key, lineage in self._lineage.items())
            self._found[source] = PartitionMapping({key: own for key, own in found if own is not None}, self._kinds)
        return self._found[source]

    @property
    def mapped_keys(self) -> tuple[str, ...]:
        """The partition keys whose values all sources determine that determine any; those of the first one if they differ."""
        found = [keys for source in self._sources if (keys := self.determined_by(source))]
        if not found:
            return ()
        common = set.intersection(*found) or found[0]
        return tuple(key for key in self._table.partition_keys if key in common)

    def determined_by(self, source: SourceBinding) -> set[str]:
        """Return the partition keys whose values follow from the partition that a row of a source is in."""
        partitions = (source.state.partitions if source.state is not None else None) or {}
        first = next(iter(partitions), "")
        known = {name.lower() for name in parse_spec(first)} if first else set()
        keys = self.of(source.identifier).keys
        columns = {key: {column.name for formula in own.formulas for column in columns_of(formula)} for key, own in keys.items()}
        return {key for key, names in columns.items() if names <= known}

    def all_partitions(self, keys: Sequence[str]) -> list[dict[str, str]] | None:
        """Return the partitions, by some keys, of which the query may return rows now; ``None`` if they are unknown."""
        if tuple(keys) not in self._every:
            self._every[tuple(keys)] = self._list_partitions(keys)
        return self._every[tuple(keys)]

    def _list_partitions(self, keys: Sequence[str]) -> list[dict[str, str]] | None:
        if not keys or not all(key in self._lineage and self._lineage[key].is_closed for key in keys):
            return None
        texts = [key for key in keys if any(own.any_other_spelling for own in self._lineage[key].sources.values())]
        if len(texts) > 1:
            return None
        # Each row has its first key from a partition of a source that returns it, and that partition has its other keys.
        first = texts[0] if texts else keys[0]
        found: list[dict[str, str]] = []
        for source in self._sources:
            own = self._lineage[first].sources.get(source.identifier)
            if own is None or not (returned := own.without_texts_of_days).formulas:
                continue
            partitions = source.state.partitions if source.state is not None else None
            mapping = self.of(source.identifier)
            if own.any_other_spelling:
                mapping = PartitionMapping({**mapping.keys, first: returned}, self._kinds)
            specs = mapping.affected(partitions).specs(keys)
            if specs is None:
                return None
            found += specs
        return found

    def restricted(self, plan: RefreshPlan) -> RefreshPlan:
        """Return a plan that reads only the files from which rows of its partitions can derive.

        Spark lists each file that it is given, also if it then reads none of its rows. The states of the sources stay complete.
        """
        sources = tuple(_restricted(source, self.of(source.identifier), plan.partitions) for source in plan.sources)
        merge = plan.merge
        if merge is not None:
            merge = replace(merge, current=_restricted(merge.current, self.itself, plan.partitions))
        return replace(plan, sources=sources, merge=merge)

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """The types of the columns of the table; before its first commit, those of its keys, as far as they are known."""
        if self._columns:
            return {column.name: column.type for column in self._columns}
        return {key: lineage.type for key, lineage in self._lineage.items() if lineage.type is not None}

    @cached_property
    def _lineage(self) -> dict[str, Lineage]:
        table = self._table
        types = types_of(self._sources)
        # The keys of a table of Iceberg's transforms are computed from columns, which are no keys.
        keys = plain_keys(table.partition_keys)
        settings = row_settings(table.spark.conf)
        return {key: lineage(table.expanded_query, key, types, settings, table.timezone) for key in keys}


def types_of(sources: Iterable[SourceBinding]) -> dict[str, dict[str, str]]:
    """Return the known types of the columns of sources."""
    return {source.identifier: column_types(source.schema, source.partition_keys) for source in sources}


def _restricted(binding: SourceBinding, mapping: PartitionMapping, partitions: PartitionSet) -> SourceBinding:
    # Without a schema, Spark derives one from the files. Duplicates of event times may be in any of them.
    if binding.schema is None or binding.event_time is not None:
        return binding
    return with_files(binding, partial(mapping.feeding, [*partitions]))
