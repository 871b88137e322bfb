"""Functions of catalogs that a query calls: bound to temporary functions of the Spark session."""

from __future__ import annotations

import re

from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.refresh.allowed import ability_of
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding
from airflow_dynamic_tables.definitions.queries.editing import replace_functions
from airflow_dynamic_tables.exceptions import CatalogNotFoundError, ConfigurationError
from airflow_dynamic_tables.services.workspace import Workspace

_SPARKS_OWN = ("builtin", "session")
"""Databases, of Spark's catalog ``system``, of functions that no catalog has to be asked for."""


def known_function(workspace: Workspace, name: TableIdentifier) -> TableIdentifier | None:
    """The name of a function in lower case, as catalogs keep it, if its catalog has it."""
    function = TableIdentifier(name.catalog, name.database, name.table.lower())
    if function.catalog.lower() == "system" or function.database.lower() in _SPARKS_OWN:
        return None
    try:
        return function if workspace.readable(function.catalog).function_exists(function.path) else None
    except CatalogNotFoundError:
        return None


def bind_functions(workspace: Workspace, query: str) -> tuple[str, tuple[FunctionBinding, ...]]:
    """The query with every function of a catalog replaced by a temporary one, and these.

    :param query: calls functions of catalogs by their full names, see
        :func:`~airflow_dynamic_tables.services.queries.views.inline_views`.
    :raises ConfigurationError: when functions in the language of one are not allowed.
    """
    bound: dict[TableIdentifier, FunctionBinding] = {}

    def temporary(parts: tuple[str, ...]) -> str | None:
        name = known_function(workspace, TableIdentifier(*parts)) if len(parts) == 3 else None
        if name is None:
            return None
        if name not in bound:
            function = workspace.readable(name.catalog).get_function(name.path)
            if why := workspace.settings.allowed.refusal(ability_of(function.language)):
                raise ConfigurationError(f"Function {name}: {why}.")
            bound[name] = _binding(name, function, len(bound))
        return quote(bound[name].function)

    return replace_functions(query, temporary), tuple(bound.values())


def _binding(identifier: TableIdentifier, function: CatalogFunction, number: int) -> FunctionBinding:
    properties = function.properties
    return FunctionBinding(
        identifier=str(identifier),
        function=re.sub(r"\W", "_", f"{identifier.database}_{identifier.table}_{number}", flags=re.ASCII),
        language=function.language,
        code=function.name,
        returns=properties.get("returns"),
        jars=_uris(properties.get("jars")),
        py_files=_uris(properties.get("py_files")),
    )


def _uris(text: str | None) -> tuple[str, ...]:
    return tuple(uri.strip() for uri in (text or "").split(",") if uri.strip())
