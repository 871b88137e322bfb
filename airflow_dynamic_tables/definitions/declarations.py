"""What may stand in a definitions file: closed pydantic models, and the JSON Schema made of them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from airflow_dynamic_tables.definitions.expectations import ExpectationDeclaration
from airflow_dynamic_tables.definitions.settings import Declaration, Name, Options, Settings, one_of

SOURCE_FORMATS = ("parquet", "orc", "csv", "json", "iceberg", "hive", "jdbc", "view")
FILE_FORMATS = ("parquet", "orc", "csv", "json")
PLANNED_SOURCE_FORMATS = ("delta",)


class DefaultsDeclaration(Settings):
    """What holds for every table of the file that does not say otherwise; options and Spark settings are merged key by key."""

    catalog: Name | None = None
    """Catalog of names that have less than three parts."""
    database: Name | None = None
    """Database of names that have one part."""


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


class SourceDeclaration(Declaration):
    """A table that exists already and that nobody here refreshes."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    format: Annotated[str, Field(json_schema_extra={"enum": list(SOURCE_FORMATS)})]
    """Format of its files, `iceberg`, `hive` or `jdbc` for a table of the catalog, `view` for a view of the catalog."""
    path: Name | None = None
    """Folder or file that holds the data: a path or a URI; relative to this file."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys of Hive-style folders (`ds=2024-01-01`)."""
    schema_: Name | None = Field(default=None, alias="schema")
    """Columns as Spark DDL, e.g. `id bigint, name string`; left out, Spark infers them."""
    options: Options = Field(default_factory=dict)
    """Options of Spark's reader, e.g. `header: true`."""
    comment: str | None = None
    """What the table is, for readers."""

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str) -> str:
        return one_of(value, "source format", SOURCE_FORMATS, PLANNED_SOURCE_FORMATS)

    @model_validator(mode="after")
    def _check_path(self) -> SourceDeclaration:
        if self.format in FILE_FORMATS and self.path is None:
            raise ValueError(f"a {self.format} source needs a 'path'")
        if self.format not in FILE_FORMATS and self.path is not None:
            raise ValueError(f"a source of format {self.format} is a table of its catalog and has no 'path'; remove it")
        if self.format == "view" and (self.schema_ or self.partitioned_by or self.options):
            raise ValueError("a view source is a view of its catalog; give it nothing but a name, a format and a comment")
        if self.format == "hive" and (self.schema_ or self.partitioned_by):
            raise ValueError("a source of format hive has columns and partition keys from its metastore; remove them here")
        return self


class ViewDeclaration(Declaration):
    """A named query that expands inside the queries that read it."""

    name: Name
    """Name: `view`, `database.view` or `catalog.database.view`."""
    query: Name
    """The SELECT (Spark SQL)."""
    comment: str | None = None
    """What the view is, for readers."""


class FileDeclaration(Declaration):
    """A definitions file of airflow-dynamic-tables."""

    defaults: DefaultsDeclaration = Field(default_factory=DefaultsDeclaration)
    """What holds for every table of this file that does not say otherwise."""
    sources: tuple[SourceDeclaration, ...] = ()
    """Tables that exist already and that nobody here refreshes."""
    views: tuple[ViewDeclaration, ...] = ()
    """Named queries that expand inside other queries."""
    dynamic_tables: tuple[TableDeclaration, ...] = ()
    """The tables to keep fresh."""


def definitions_schema() -> dict[str, Any]:
    """JSON Schema of a definitions file, for editors."""
    schema = FileDeclaration.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dynamic tables", **schema}
