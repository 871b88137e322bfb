"""Columns that the queries of tables return, determined by Spark's analyzer without running them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_dynamic_tables.clients.spark_parser import Refusal, SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, row_settings
from airflow_dynamic_tables.core.schema import Column, spark_ddl
from airflow_dynamic_tables.core.types import Primitive, parse_type, replace_primitives
from airflow_dynamic_tables.definitions.cache import Cache, Returned
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import edited, offset_before, table_edits
from airflow_dynamic_tables.definitions.queries.text import Analysis, QueryProblem
from airflow_dynamic_tables.exceptions import UnsupportedError

if TYPE_CHECKING:
    from airflow_dynamic_tables.definitions.entries import Expansion

Known = Callable[[TableIdentifier], str | None]
"""Returns the columns of a table as Spark DDL; ``None`` when they are unknown."""

Chosen = Callable[[Definitions], Collection[TableIdentifier]]
"""Selects the tables of definitions to check."""

_HIDDEN_COLUMN = re.compile(r"\b_metadata\b", re.IGNORECASE)
_STORED = {"tinyint": "int", "smallint": "int", "char": "string", "varchar": "string"}


def _nothing(_: TableIdentifier) -> None:
    return None


def _every_table(definitions: Definitions) -> Collection[TableIdentifier]:
    return definitions.tables.keys()


class ReturnedColumns:
    """Asks Spark which columns queries return.

    After definitions were read with it, ``returned`` has the columns of each query, ``refused`` the mistake of each query that
    Spark refuses, and ``unchecked`` the reason for each query whose columns are unknown.

    :param known: columns of existing tables and sources.
    :param choose: selects the tables of the definitions to check. The queries of their upstream tables are analysed too if the
        columns of these are unknown.
    """

    def __init__(
        self,
        spark: SparkParser,
        cache: Cache,
        known: Known = _nothing,
        choose: Chosen = _every_table,
    ) -> None:
        self._spark = spark
        self._cache = cache
        self._known = known
        self.chosen = choose
        self.returned: dict[TableIdentifier, Returned] = {}
        self.unchecked: dict[TableIdentifier, str] = {}
        self.refused: dict[TableIdentifier, Mistake] = {}

    def problems(
        self, definitions: Definitions, expansions: Mapping[TableIdentifier, Expansion]
    ) -> Iterator[tuple[TableIdentifier, QueryProblem]]:
        """Yield Spark's problems with queries, by table; offsets refer to the text that the user wrote."""
        chosen = set(self.chosen(definitions))
        given: dict[TableIdentifier, str | None] = {}
        for name in self._needed(definitions, chosen, given):
            problem = self._ask(definitions.tables[name], expansions[name], given)
            if problem is not None and name in chosen:
                yield name, problem

    def _needed(
        self, definitions: Definitions, chosen: Collection[TableIdentifier], given: dict[TableIdentifier, str | None]
    ) -> list[TableIdentifier]:
        """Return the tables whose queries are analysed, parents first; known columns of other tables are added to ``given``."""
        waiting = list(chosen)
        needed = set(chosen)
        while waiting:
            for name in definitions.tables[waiting.pop()].upstream:
                if name in needed or name in given:
                    continue
                given[name] = self._declared(definitions.sources.get(name)) or self._known(name)
                if given[name] is None and name in definitions.tables:
                    needed.add(name)
                    waiting.append(name)
        return [table.identifier for table in definitions.topological() if table.identifier in needed]

    def _declared(self, source: Source | None) -> str | None:
        """Return the declared columns of a source; partition keys that are not declared are strings."""
        if source is None or source.schema is None:
            return None
        named = source.schema.lower().replace("`", "")
        keys = (key for key in source.partition_keys if not re.search(rf"(?:^|,)\s*{re.escape(key.lower())}\b", named))
        return ", ".join([source.schema, *(f"{quote(key)} string" for key in keys)])

    def _ask(self, table: DynamicTable, expansion: Expansion, given: dict[TableIdentifier, str | None]) -> QueryProblem | None:
        """Analyse the query of a table, and add its columns to ``given`` for the tables that read it."""
        name = table.identifier
        given[name] = None
        unknown = [each for each in table.upstream if given.get(each) is None]
        if unknown or _HIDDEN_COLUMN.search(expansion.query):
            why = f"the columns of {unknown[0]} are not known" if unknown else "it names _metadata, which only files have"
            self.unchecked[name] = why
            return None
        framed = _Framed(expansion, self._cache.analyse(expansion.query), {each: str(given[each]) for each in table.upstream})
        settings = row_settings(table.spark.conf)
        returned = self._cache.returned(self._spark, framed.text, {**DEFAULTS, **settings, **FIXED, TIME_ZONE: table.timezone})
        if returned.refusal is not None:
            return QueryProblem(
                framed.offset(returned.refusal), f"Spark {self._spark.version} refuses this query: {returned.refusal.message}"
            )
        if not returned.columns:
            self.unchecked[name] = "it calls functions, or returns types, that only a session of Spark knows"
            return None
        self.returned[name] = returned
        given[name] = stored_ddl(returned.columns)
        return None


class _Framed:
    """A query over empty tables of known columns, which are prepended as common table expressions."""

    def __init__(self, expansion: Expansion, analysis: Analysis, given: Mapping[TableIdentifier, str]) -> None:
        self._expansion = expansion
        query = expansion.query
        names = {table: _new_name(number, query) for number, table in enumerate(given)}
        self._edits = table_edits(analysis, {table: quote(name) for table, name in names.items()})
        empty = (
            f"{quote(names[table])} AS (SELECT s.* FROM (SELECT CAST(NULL AS STRUCT<{ddl}>) AS s))"
            for table, ddl in given.items()
        )
        self._head = f"WITH {', '.join(empty)} (\n" if given else "(\n"
        self.text = f"{self._head}{edited(query, self._edits)}\n)"

    def offset(self, refusal: Refusal) -> int:
        """Return the offset of a refusal in the text that the user wrote; 0 if Spark reports no position."""
        text = self._expansion.analysis.text
        blank = len(text) - len(text.lstrip())
        if refusal.place is None:
            return blank
        line, column = refusal.place
        place = sum(len(before) + 1 for before in self.text.split("\n")[:line]) + column - len(self._head)
        written = offset_before(self._expansion.edits, offset_before(self._edits, max(place, 0)) + blank)
        return min(written, len(text))


def _new_name(number: int, query: str) -> str:
    name = f"table_{number}"
    while name in query.lower():
        name += "_"
    return name


def stored_ddl(columns: Collection[Column]) -> str | None:
    """Return, as Spark DDL, the columns of a table created from a query with these outputs."""
    try:
        return spark_ddl([replace(column, type=stored_type(column.type)) for column in columns])
    except UnsupportedError:
        return None


def stored_type(kind: str) -> str:
    """Return the type that a table stores for a type, the same in every format.

    :raises UnsupportedError: when the text is not a type.
    """
    return str(replace_primitives(parse_type(kind), lambda part: Primitive(_STORED[part.name]) if part.name in _STORED else part))
