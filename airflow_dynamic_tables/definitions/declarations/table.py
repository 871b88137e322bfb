"""The declaration of a dynamic table."""

from __future__ import annotations

from pydantic import Field, model_validator

from airflow_dynamic_tables.definitions.declarations.base import Name
from airflow_dynamic_tables.definitions.declarations.expectations import ExpectationDeclaration
from airflow_dynamic_tables.definitions.declarations.settings import Settings


class TableDeclaration(Settings):
    """A dynamic table: its content is its query, never older than its freshness."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    query: Name | None = None
    """The SELECT (Spark SQL) whose result is the table."""
    query_file: Name | None = None
    """File with the query instead, relative to this file and below its folder."""
    comment: str | None = None
    """What the table is, for readers."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys: columns that the query returns."""
    columns: dict[Name, str] = Field(default_factory=dict)
    """Comments of columns, by column name."""
    expectations: tuple[ExpectationDeclaration, ...] = ()
    """What is expected of the rows, checked before every commit."""

    @model_validator(mode="after")
    def _check_query(self) -> TableDeclaration:
        if (self.query is None) == (self.query_file is None):
            raise ValueError("a dynamic table needs either 'query' or 'query_file'")
        return self
