"""Resolution of names that omit their catalog or database, with light imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from airflow_dynamic_tables.catalog.file import default_names
from airflow_dynamic_tables.core.identifiers import TableIdentifier, check_name, split_name
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, TableNotFoundError
from airflow_dynamic_tables.services.settings import chosen_catalogs_file


def names_scope(environ: Mapping[str, str], beside: Path | None) -> tuple[str, str]:
    """Return the default catalog and database of short names, from the catalogs file.

    :raises DefinitionError: if the catalogs file is invalid.
    """
    return default_names(chosen_catalogs_file(environ, beside))


def named_table(definitions: Definitions, name: str) -> DynamicTable:
    """Return the defined table with a name of one to three parts.

    :raises TableNotFoundError: if there is none, with a suggestion; or if there are several.
    """
    table = definitions.table(name)
    if table is not None:
        return table
    full = [str(identifier) for identifier in definitions.tables]
    several = [identifier for identifier in full if identifier.endswith(f".{name}")]
    if several:
        raise TableNotFoundError(f"{name} may be any of {', '.join(several)}; name its database too.")
    known = {ending: identifier for identifier in full for ending in _endings(identifier)}
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {known[close[0]]}?" if close else f"defined are: {', '.join(full) or 'none'}."
    raise TableNotFoundError(f"No dynamic table {name} is defined; {hint}")


def named_identifier(name: str, definitions: Callable[[], Definitions]) -> TableIdentifier:
    """Return the full name of a table. A name with three parts need not be defined.

    :param definitions: loads the definitions, only if the name is incomplete.
    :raises ConfigurationError: if it is not a valid name.
    """
    try:
        parts = split_name(name)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    return TableIdentifier(*parts) if len(parts) == 3 else named_table(definitions(), name).identifier


def check_names(*names: str) -> None:
    """Check the names of a new object.

    :raises ConfigurationError: if one is invalid, see :func:`~airflow_dynamic_tables.core.identifiers.check_name`.
    """
    try:
        for name in names:
            check_name(name)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error


def _endings(identifier: str) -> list[str]:
    parts = identifier.split(".")
    return [".".join(parts[position:]) for position in range(len(parts))]
