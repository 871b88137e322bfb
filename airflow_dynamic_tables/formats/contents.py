"""What a version of a table holds: its files, as Spark reads them, and its rows, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partitions import PartitionSet


@dataclass(frozen=True, slots=True)
class TableContent:
    """One snapshot of a table as files: Spark reads exactly ``files`` with ``schema`` (DDL), by column name.

    ``format`` is that of the files. With ``base_path``, ``partition_keys`` are in the names of the folders below it, as Hive
    has them; otherwise all columns are in the files. Files that do not lie below one folder are in ``parts``, too. With
    ``table``, Spark reads the snapshot by that name, by a library of its own. ``state`` is what a refresh to come compares.
    """

    snapshot: str
    files: tuple[str, ...] = ()
    schema: str | None = None
    format: str = "parquet"
    base_path: str | None = None
    partition_keys: tuple[str, ...] = ()
    parts: tuple[SourcePart, ...] = ()
    table: str | None = None
    state: SourceState | None = None

    def bound(self, identifier: TableIdentifier, view: str) -> SourceBinding:
        """The same for a job that reads it as ``view``."""
        return SourceBinding(
            identifier=str(identifier),
            view=view,
            format=self.format,
            version=self.snapshot,
            files=() if self.parts else self.files,
            base_path=self.base_path,
            schema=self.schema,
            partition_keys=self.partition_keys,
            table=self.table,
            parts=self.parts,
            state=self.state,
        )


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of one version: ``replaced`` are those of the asked partitions, ``held`` how many of the asked specs have rows at all.

    ``total`` are the rows of all ``partitions``, of which a table without partition keys has one.
    """

    replaced: int
    held: int
    total: int
    partitions: int

    @classmethod
    def of(cls, files: Iterable[tuple[Mapping[str, str | None], int]], asked: PartitionSet) -> RowCounts:
        """Sum up partitions and rows of files."""
        rows: Counter[tuple[tuple[str, str | None], ...]] = Counter()
        for spec, count in files:
            if count:
                rows[tuple(spec.items())] += count
        replaced = 0
        held: set[frozenset[tuple[str, str | None]]] = set()
        for partition, count in rows.items():
            covering = asked.covering(dict(partition))
            held |= {frozenset(spec.items()) for spec in covering}
            replaced += count if covering else 0
        return cls(replaced, len(held), rows.total(), len(rows))
