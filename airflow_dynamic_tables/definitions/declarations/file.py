"""What may stand in a definitions file, and the JSON Schema made of it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from airflow_dynamic_tables.definitions.declarations.base import Declaration
from airflow_dynamic_tables.definitions.declarations.defaults import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.expectations import QueryTestDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.spark import SparkDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration, ViewDeclaration


class FileDeclaration(Declaration):
    """A definitions file of airflow-dynamic-tables."""

    defaults: DefaultsDeclaration = Field(default_factory=DefaultsDeclaration)
    """What holds for every table of this file that does not say otherwise; in `defaults.yaml`, of its folder and those in it."""
    sources: tuple[SourceDeclaration, ...] = ()
    """Tables that exist already and that nobody here refreshes."""
    views: tuple[ViewDeclaration, ...] = ()
    """Named queries that expand inside other queries."""
    dynamic_tables: tuple[TableDeclaration, ...] = ()
    """The tables to keep fresh."""
    tests: tuple[QueryTestDeclaration, ...] = ()
    """Unit tests of their queries, or of those of other files."""


_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def definitions_schema() -> dict[str, Any]:
    """JSON Schema of a definitions file, for editors."""
    schema = FileDeclaration.model_json_schema()
    for model in (DefaultsDeclaration, TableDeclaration, SparkDeclaration):
        properties = schema["$defs"][model.__name__]["properties"]
        for name in properties:
            if model is SparkDeclaration or name in DefaultsDeclaration.model_fields:
                properties[name] = _or_variable(properties[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dynamic tables", **schema}


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that takes ``${NAME}`` wherever it wants anything but free text."""
    if schema.get("type") in ("integer", "boolean") or "enum" in schema or "format" in schema:
        return {"anyOf": [schema, _VARIABLE]}
    alternatives = {"anyOf": [_or_variable(one) for one in schema["anyOf"]]} if "anyOf" in schema else {}
    items = {"items": _or_variable(schema["items"])} if "items" in schema else {}
    return {**schema, **alternatives, **items}
