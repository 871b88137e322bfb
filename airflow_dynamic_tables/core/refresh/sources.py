"""Tables that exist already and that nobody here refreshes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.tables.formats import VIEW


@dataclass(frozen=True, slots=True)
class Source:
    """A table that exists already and that nobody here refreshes.

    ``path`` is where its data is, ``schema`` Spark DDL; ``file`` and ``line`` are where it was declared. Of format ``view``
    it is a view of its catalog, which only a refresh looks up.
    """

    identifier: TableIdentifier
    format: str
    path: str | None = None
    partition_keys: tuple[str, ...] = ()
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    file: Path = Path()
    line: int = 0

    @property
    def is_view(self) -> bool:
        """Whether a query of the catalog stands behind the name."""
        return self.format == VIEW
