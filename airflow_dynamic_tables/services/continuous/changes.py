"""Whether the definition of a table is still the one that its loop began with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.normalised import normalised
from airflow_dynamic_tables.services.continuous.loop import Halt

_OF_NO_TASK = frozenset({"file", "line", "deadline", "executor"})
"""What is not asked: where a definition stands, and what only the scheduler knows of it."""


class DefinitionWatch:
    """Looks at the definition of a table again and again.

    :param table: the definition that the loop works with.
    :param sources: what the table reads.
    :param load: reads the definitions that the table's workflow needs; empty where that is broken or gone.
    """

    def __init__(self, table: DynamicTable, sources: Mapping[TableIdentifier, Source], load: Callable[[], Definitions]) -> None:
        self._table = table
        self._load = load
        self._first = _meaning(table, sources)

    def halt(self) -> Halt | None:
        """The end of the loop when the definition has another meaning now; no turn while it is broken or gone.

        What is broken may be half of a deploy. When it is gone for good, no run follows that whose hold is over.
        """
        definitions = self._load()
        table = definitions.tables.get(self._table.identifier)
        if table is None:
            return Halt(f"the definition of {self._table.identifier} is gone, or has mistakes")
        needed = {name: definitions.sources[name] for name in definitions.needed_by(table) if name in definitions.sources}
        return Halt("its definition changed", ends=True) if _meaning(table, needed) != self._first else None


def _meaning(table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> list[Any]:
    """What the definitions say that concerns a task, wherever they stand."""
    said = [normalised(table), *(to_plain(sources[name]) for name in sorted(sources))]
    return [{key: value for key, value in each.items() if key not in _OF_NO_TASK} for each in said]
