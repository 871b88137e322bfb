"""Names that leave out their catalog or database. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow_dynamic_tables.catalog.file import default_names
from airflow_dynamic_tables.services.settings import chosen_catalogs_file


def names_scope(environ: Mapping[str, str], beside: Path | None) -> tuple[str, str]:
    """The catalog and the database of names that leave them out: the default ones of the catalogs file.

    :raises DefinitionError: when the catalogs file is wrong.
    """
    return default_names(chosen_catalogs_file(environ, beside))
