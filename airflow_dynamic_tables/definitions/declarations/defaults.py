"""What holds for every table of a file, or of all files of a folder, that does not say otherwise."""

from __future__ import annotations

from airflow_dynamic_tables.definitions.declarations.base import PlainName
from airflow_dynamic_tables.definitions.declarations.settings import Settings


class DefaultsDeclaration(Settings, defer_build=False):
    """What holds for every table that does not say otherwise; options, params and Spark settings are merged key by key."""

    catalog: PlainName | None = None
    """Catalog of names that have less than three parts."""
    database: PlainName | None = None
    """Database of names that have one part."""
