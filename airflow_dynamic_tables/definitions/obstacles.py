"""Obstacles of partition lineage and of merges in the queries of tables, with their places in the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.refresh.key_sources import Lineage, Obstacle, ObstacleCode, columns_of
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.core.refresh.spark_settings import row_settings
from airflow_dynamic_tables.core.types import column_types
from airflow_dynamic_tables.definitions.entries import Entry, Expansion
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import offset_before
from airflow_dynamic_tables.definitions.queries.text import key_joins, lineage, merge_rule


@dataclass(frozen=True, slots=True)
class TableObstacle:
    """A place of a query that makes every change of some sources one of all partitions of the table, or prevents merges.

    ``key`` is the partition key that is not followed, and empty if new rows are not merged. ``cause`` and ``remedy`` are for
    people.
    """

    table: TableIdentifier
    key: str
    code: ObstacleCode
    sources: tuple[str, ...]
    cause: str
    remedy: str
    place: Mistake

    @property
    def text(self) -> str:
        """The consequence, the cause and the remedy."""
        named = " and ".join(self.sources)
        if not self.key:
            return f"{self.table}: new rows of {named} are not merged, because {self.cause}; {self.remedy}"
        return f"{self.table}: a change of {named} counts for every {self.key}, because {self.cause}; {self.remedy}"

    def __str__(self) -> str:
        """Return the place with the code and the text, as one line."""
        return str(Mistake(self.place.path, self.place.line, self.place.column, f"{self.code}: {self.text}"))


class Obstacles:
    """Collects the obstacles of all tables while their definitions are read."""

    def __init__(self) -> None:
        self.found: list[TableObstacle] = []

    def collect(
        self, definitions: Definitions, entries: Mapping[TableIdentifier, Entry], expansions: Mapping[TableIdentifier, Expansion]
    ) -> None:
        """Add the obstacles of tables with partition keys and of merges, in the order of their places."""
        for identifier, table in definitions.tables.items():
            if identifier in expansions:
                entry, expansion = entries[identifier], expansions[identifier]
                self.found += obstacles_of(definitions, table, entry, expansion)
                self.found += _unmerged(definitions, table, entry, expansion)
        self.found.sort(key=lambda each: each.place)


def obstacles_of(definitions: Definitions, table: DynamicTable, entry: Entry, expansion: Expansion) -> Iterator[TableObstacle]:
    """Yield the obstacles of a table."""
    if entry.query is None:
        return
    for key, obstacle, sources in _of_table(definitions, table):
        place = entry.query.mistake(_written(expansion, obstacle, sources), "")
        yield TableObstacle(table.identifier, key, obstacle.code, sources, obstacle.cause, obstacle.remedy, place)


def _unmerged(definitions: Definitions, table: DynamicTable, entry: Entry, expansion: Expansion) -> Iterator[TableObstacle]:
    """Yield what prevents that rows added to sources are merged into an incremental table, by place."""
    if entry.query is None or not table.is_incremental or table.frozen is not None:
        return
    types, settings = _types(definitions, table), row_settings(table.spark.conf)
    found: dict[Obstacle, list[str]] = {}
    for identifier in table.upstream:
        name = str(identifier)
        if table.on_change.get(name, OnChange.REFRESH) is OnChange.REFRESH:
            obstacle = merge_rule(table.expanded_query, name, types, settings)
            if isinstance(obstacle, Obstacle):
                found.setdefault(obstacle, []).append(name)
    for obstacle, names in found.items():
        place = entry.query.mistake(_written(expansion, obstacle, tuple(names)), "")
        yield TableObstacle(table.identifier, "", obstacle.code, tuple(names), obstacle.cause, obstacle.remedy, place)


def refusals_of(definitions: Definitions, table: DynamicTable, entry: Entry, expansion: Expansion) -> Iterator[Mistake]:
    """Yield why a table that may only be refreshed by partition cannot be: no key tells the partitions of all sources apart."""
    found = list(obstacles_of(definitions, table, entry, expansion))
    if {each.key for each in found} >= set(_keys(table)):
        for each in found:
            text = f"refresh_mode incremental_strict: {each.text}"
            yield Mistake(each.place.path, each.place.line, each.place.column, text)


def undivided(definitions: Definitions, table: DynamicTable, entry: Entry, expansion: Expansion) -> Iterator[Mistake]:
    """Yield why the refreshes of a table cannot be divided into several commits: its sources do not tell its partitions."""
    found = [(key, _lineage(definitions, table, key)) for key in _keys(table)]
    obstacles = {key: [*_unpartitioned(definitions, table, each)] if each.is_closed else [*each.obstacles] for key, each in found}
    if entry.query is None or any(each.is_closed and not obstacles[key] for key, each in found):
        return
    said = "max_partitions_per_commit: the partitions of the table cannot be listed from its sources"
    for key, _ in found:
        for one in obstacles[key]:
            text = f"{said}, because {one.cause}; {one.remedy.partition(', or set on_change')[0]}, or take the setting away"
            yield entry.query.mistake(_written(expansion, one, one.sources or tuple(map(str, table.upstream))), text)
        if not obstacles[key]:
            yield entry.mistake("max_partitions_per_commit", f"no table of the query has the values of {key!r}; take it away")
    if not found:
        yield entry.mistake("max_partitions_per_commit", "partitions by computed keys cannot be named; take it away")


def _lineage(definitions: Definitions, table: DynamicTable, key: str) -> Lineage:
    types, settings = _types(definitions, table), row_settings(table.spark.conf)
    return lineage(table.expanded_query, key, types, settings, table.timezone, assumed=True)


def _types(definitions: Definitions, table: DynamicTable) -> dict[str, dict[str, str]]:
    """Return the types of columns that sources declare."""
    read = {str(name): definitions.sources.get(name) for name in table.upstream}
    return {name: column_types(source.schema, source.partition_keys) for name, source in read.items() if source is not None}


def _of_table(definitions: Definitions, table: DynamicTable) -> Iterator[tuple[str, Obstacle, tuple[str, ...]]]:
    """Yield the obstacles of each key, without sources whose changes are ignored, or mapped by the keys of a join."""
    read = tuple(map(str, table.upstream))
    types, settings = _types(definitions, table), row_settings(table.spark.conf)
    ignored = {name for name, policy in table.on_change.items() if policy is OnChange.IGNORE}
    affected = {name for name, policy in table.on_change.items() if policy is OnChange.AFFECTED}
    for key in _keys(table):
        found = _lineage(definitions, table, key)
        obstacles = [*found.obstacles, *_unpartitioned(definitions, table, found)]
        hidden = {name for obstacle in obstacles for name in obstacle.sources or read}
        for obstacle in obstacles:
            sources = tuple(name for name in obstacle.sources or read if name not in ignored | affected)
            if sources:
                yield key, obstacle, sources
        facts = {*read} - hidden - ignored
        for name in sorted(hidden & affected):
            joins = key_joins(table.expanded_query, name, facts, types, settings, assumed=True)
            unfollowed = joins if isinstance(joins, Obstacle) else _without_versions(definitions, name)
            if unfollowed is not None:
                yield key, unfollowed, (name,)


def _keys(table: DynamicTable) -> tuple[str, ...]:
    """Return the keys by which partitions are found: those of time, if there are any and the refreshes are not incremental."""
    keys = plain_keys(table.partition_keys)
    return keys if table.is_incremental else tuple(table.formatters) or keys


def _unpartitioned(definitions: Definitions, table: DynamicTable, found: Lineage) -> Iterator[Obstacle]:
    """Yield an obstacle for each source that is not partitioned by the columns of the key, as far as definitions tell.

    Catalogs, and Delta tables themselves, describe the other ones.
    """
    for name in table.upstream:
        own = found.sources.get(str(name))
        declared = definitions.sources.get(name)
        source = declared if declared is not None and FORMATS[declared.format].is_folder else definitions.tables.get(name)
        if own is None or source is None:
            continue
        needed = {column.name for formula in own.formulas for column in columns_of(formula)}
        if missing := sorted(needed - {key.lower() for key in source.partition_keys}):
            cause = f"{name} is not partitioned by {', '.join(missing)}"
            remedy = "partition it by that column, or set on_change: ignore for it"
            yield Obstacle(ObstacleCode.NOT_PARTITIONED, -1, cause, remedy, (str(name),))


def _without_versions(definitions: Definitions, name: str) -> Obstacle | None:
    """Return an obstacle if a dimension keeps no earlier versions to compare its rows with, as far as definitions tell."""
    identifier = TableIdentifier.parse(name)
    source = definitions.sources.get(identifier) or definitions.tables.get(identifier)
    if source is None or FORMATS[source.format].has_history:
        return None
    cause = f"{name} has the format {source.format}, which keeps no earlier versions to compare its rows with"
    return Obstacle(
        ObstacleCode.NO_VERSIONS, -1, cause, "make it an Iceberg or a Delta table, or set on_change: ignore for it", (name,)
    )


def _written(expansion: Expansion, obstacle: Obstacle, sources: tuple[str, ...]) -> int:
    """Return the offset of an obstacle in the text that the user wrote; that of its first source if it has no offset."""
    if obstacle.offset < 0:
        found = (reference.parts[0].start for name, reference in expansion.origins.items() if str(name) in sources)
        return min(found, default=0)
    text = expansion.analysis.text
    blank = len(text) - len(text.lstrip())
    return min(offset_before(expansion.edits, obstacle.offset + blank), len(text))
