"""Obstacles of partition lineage in the queries of tables, with their places in the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.refresh.key_sources import Lineage, Obstacle, ObstacleCode, columns_of
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.core.refresh.spark_settings import decides_rows
from airflow_dynamic_tables.core.types import column_types
from airflow_dynamic_tables.definitions.entries import Entry, Expansion
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import offset_before
from airflow_dynamic_tables.definitions.queries.text import lineage


@dataclass(frozen=True, slots=True)
class TableObstacle:
    """A place of a query that makes every change of some sources one of all partitions of the table.

    ``key`` is the partition key that is not followed, ``cause`` and ``remedy`` are for people.
    """

    table: TableIdentifier
    key: str
    code: ObstacleCode
    sources: tuple[str, ...]
    cause: str
    remedy: str
    place: Mistake

    def __str__(self) -> str:
        """Return the place with the code, the cause and the remedy, as one line."""
        named = " and ".join(self.sources)
        text = f"{self.code}: {self.table}: a change of {named} counts for every {self.key}, because {self.cause}; {self.remedy}"
        return str(Mistake(self.place.path, self.place.line, self.place.column, text))


class Obstacles:
    """Collects the obstacles of all tables while their definitions are read."""

    def __init__(self) -> None:
        self.found: list[TableObstacle] = []

    def collect(
        self, definitions: Definitions, entries: Mapping[TableIdentifier, Entry], expansions: Mapping[TableIdentifier, Expansion]
    ) -> None:
        """Add the obstacles of tables with partition keys, in the order of their places."""
        for identifier, table in definitions.tables.items():
            entry = entries[identifier]
            if entry.query is not None and identifier in expansions:
                for key, obstacle, sources in _of_table(definitions, table):
                    place = entry.query.mistake(_written(expansions[identifier], obstacle, sources), "")
                    told = obstacle.code, sources, obstacle.cause, obstacle.remedy
                    self.found.append(TableObstacle(identifier, key, *told, place))
        self.found.sort(key=lambda each: each.place)


def _of_table(definitions: Definitions, table: DynamicTable) -> Iterator[tuple[str, Obstacle, tuple[str, ...]]]:
    """Yield the obstacles of each key, without those of sources whose changes are ignored.

    The keys are those of time, by which older partitions are found; others only if there are none.
    """
    settings = {name: value for name, value in table.spark.conf.items() if decides_rows(name)}
    read = {str(name): definitions.sources.get(name) for name in table.upstream}
    types = {name: column_types(source.schema, source.partition_keys) for name, source in read.items() if source is not None}
    ignored = {name for name, policy in table.on_change.items() if policy is OnChange.IGNORE}
    for key in tuple(table.formatters) or plain_keys(table.partition_keys):
        found = lineage(table.expanded_query, key, types, settings, table.timezone, assumed=True)
        for obstacle in (*found.obstacles, *_unpartitioned(definitions, table, found)):
            sources = tuple(name for name in obstacle.sources or read if name not in ignored)
            if sources:
                yield key, obstacle, sources


def _unpartitioned(definitions: Definitions, table: DynamicTable, found: Lineage) -> Iterator[Obstacle]:
    """Yield an obstacle for each source that is not partitioned by the columns of the key; catalogs describe the other ones."""
    for name in table.upstream:
        own = found.sources.get(str(name))
        declared = definitions.sources.get(name)
        source = declared if declared is not None and declared.path is not None else definitions.tables.get(name)
        if own is None or source is None:
            continue
        needed = {column.name for formula in own.formulas for column in columns_of(formula)}
        if missing := sorted(needed - {key.lower() for key in source.partition_keys}):
            cause = f"{name} is not partitioned by {', '.join(missing)}"
            remedy = "partition it by that column, or set on_change: ignore for it"
            yield Obstacle(ObstacleCode.NOT_PARTITIONED, -1, cause, remedy, (str(name),))


def _written(expansion: Expansion, obstacle: Obstacle, sources: tuple[str, ...]) -> int:
    """Return the offset of an obstacle in the text that the user wrote; that of its first source if it has no offset."""
    if obstacle.offset < 0:
        found = (reference.parts[0].start for name, reference in expansion.origins.items() if str(name) in sources)
        return min(found, default=0)
    text = expansion.analysis.text
    blank = len(text) - len(text.lstrip())
    return min(offset_before(expansion.edits, obstacle.offset + blank), len(text))
