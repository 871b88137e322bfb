"""Names that leave out their catalog or database. Imports nothing heavy."""

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
    """The catalog and the database of names that leave them out: the default ones of the catalogs file.

    :raises DefinitionError: when the catalogs file is wrong.
    """
    return default_names(chosen_catalogs_file(environ, beside))


def named_table(definitions: Definitions, name: str) -> DynamicTable:
    """The defined table of that name in one, two or three parts.

    :raises TableNotFoundError: when there is none, with "did you mean"; or when there are several.
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
    """The full name of a table; one in three parts need not be defined (any more).

    :param definitions: asked for only when the name leaves something out.
    :raises ConfigurationError: when it is no name.
    :raises TableNotFoundError: see :func:`named_table`.
    """
    try:
        parts = split_name(name)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error
    return TableIdentifier(*parts) if len(parts) == 3 else named_table(definitions(), name).identifier


def check_names(*names: str) -> None:
    """Refuse names of something new.

    :raises ConfigurationError: when one may not be a name, see :func:`~airflow_dynamic_tables.core.identifiers.check_name`.
    """
    try:
        for name in names:
            check_name(name)
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from error


def _endings(identifier: str) -> list[str]:
    parts = identifier.split(".")
    return [".".join(parts[position:]) for position in range(len(parts))]
