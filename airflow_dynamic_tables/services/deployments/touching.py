"""Tables downstream of a changed one, and which of their columns may have other values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.lineage.columns import ALL, NONE, Touched, touched_columns
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.services.deployments import values


class Downstream:
    """What reads what among all definitions; made once for many changed tables."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    @cached_property
    def _places(self) -> dict[TableIdentifier, int]:
        """Each table's place in an order in which tables come after those that they read."""
        return {table.identifier: place for place, table in enumerate(self._definitions.topological())}

    @cached_property
    def _readers(self) -> dict[TableIdentifier, list[TableIdentifier]]:
        readers: dict[TableIdentifier, list[TableIdentifier]] = {}
        for table in self._definitions.tables.values():
            for parent in table.upstream:
                readers.setdefault(parent, []).append(table.identifier)
        return readers

    def of(self, identifier: TableIdentifier, columns: Touched) -> tuple[values.Touched, ...]:
        """The tables that read a table, directly or not, parents before children; without those that no change reaches.

        :param columns: those of the table that may have other values.
        """
        touched: dict[TableIdentifier, Touched] = {identifier: columns}
        for name in self.below(identifier):
            touched[name] = self._touched(name, touched)
        del touched[identifier]
        return tuple(
            values.Touched(name, None if found is None else tuple(sorted(found)))
            for name, found in touched.items()
            if found != NONE
        )

    def _touched(self, name: TableIdentifier, touched: dict[TableIdentifier, Touched]) -> Touched:
        table = self._definitions.tables[name]
        found: frozenset[str] = frozenset()
        for parent in table.upstream:
            more = touched_columns(table.expanded_query, touched.get(parent, NONE))
            if more is None:
                return ALL
            found |= more
        return found

    def below(self, identifier: TableIdentifier) -> Iterable[TableIdentifier]:
        """The tables that read a table, directly or not, parents before children."""
        found: set[TableIdentifier] = set()
        waiting = [identifier]
        while waiting:
            new = set(self._readers.get(waiting.pop(), ())) - found
            found |= new
            waiting.extend(new)
        return sorted(found - {identifier}, key=self._places.__getitem__)
