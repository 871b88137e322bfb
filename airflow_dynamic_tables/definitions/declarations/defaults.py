"""The section `defaults` of a definitions file."""

from __future__ import annotations

from airflow_dynamic_tables.definitions.declarations.base import PlainName
from airflow_dynamic_tables.definitions.declarations.settings import Settings


class DefaultsDeclaration(Settings, defer_build=False):
    """Defaults of tables; options, params and Spark settings are merged key by key."""

    catalog: PlainName | None = None
    """Catalog of names with fewer than three parts."""
    database: PlainName | None = None
    """Database of names with one part."""
