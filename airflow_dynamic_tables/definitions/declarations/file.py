"""Declarations of a definitions file and of its defaults, and their JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from airflow_dynamic_tables.definitions.declarations.base import Declaration
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration, SparkDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import QueryTestDeclaration, TableDeclaration, ViewDeclaration


class FileDeclaration(Declaration):
    """A definitions file of airflow-dynamic-tables."""

    defaults: DefaultsDeclaration = Field(default_factory=DefaultsDeclaration)
    """Defaults of the tables in this file; in `defaults.yaml`, of its folder and subfolders."""
    sources: tuple[SourceDeclaration, ...] = ()
    """Existing tables that are not refreshed by these definitions."""
    views: tuple[ViewDeclaration, ...] = ()
    """Named queries that are expanded inside other queries."""
    dynamic_tables: tuple[TableDeclaration, ...] = ()
    """Tables to keep fresh."""
    tests: tuple[QueryTestDeclaration, ...] = ()
    """Unit tests of the queries of this file or of other files."""


_VARIABLE = {"type": "string", "pattern": r"\$\{"}


def definitions_schema() -> dict[str, Any]:
    """Return the JSON Schema of a definitions file, for editors."""
    schema = FileDeclaration.model_json_schema()
    for model in (DefaultsDeclaration, TableDeclaration, SparkDeclaration):
        properties = schema["$defs"][model.__name__]["properties"]
        for name in properties:
            if model is SparkDeclaration or name in DefaultsDeclaration.model_fields:
                properties[name] = _or_variable(properties[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dynamic tables", **schema}


def _or_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also accepts ``${NAME}``, unless it accepts free text."""
    if schema.get("type") in ("integer", "boolean") or "enum" in schema or "format" in schema:
        return {"anyOf": [schema, _VARIABLE]}
    alternatives = {"anyOf": [_or_variable(one) for one in schema["anyOf"]]} if "anyOf" in schema else {}
    items = {"items": _or_variable(schema["items"])} if "items" in schema else {}
    return {**schema, **alternatives, **items}
