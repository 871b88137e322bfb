"""The catalogs file of a project, and the names that its definitions may leave out. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow_dynamic_tables.catalog.catalogs_file import default_names


def find_catalogs_file(definitions: Path) -> Path | None:
    """The ``catalogs.yaml`` in the folder of the definitions, or beside that folder."""
    folder = definitions if definitions.is_dir() else definitions.parent
    places = (place / name for place in (folder, folder.parent) for name in ("catalogs.yaml", "catalogs.yml"))
    return next((place for place in places if place.is_file()), None)


def chosen_catalogs_file(environ: Mapping[str, str], beside: Path | None) -> Path | None:
    """The catalogs file that ``DYNAMIC_TABLES_CATALOGS`` names, else the one beside the definitions."""
    named = environ.get("DYNAMIC_TABLES_CATALOGS")
    return Path(named) if named else beside


def names_scope(environ: Mapping[str, str], beside: Path | None) -> tuple[str, str]:
    """The catalog and the database of names that leave them out: the default ones of the catalogs file.

    :raises DefinitionError: when the catalogs file is wrong.
    """
    return default_names(chosen_catalogs_file(environ, beside))
