"""Queries: inlining of catalog views, and binding of catalog functions to temporary functions of the Spark session."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogFunction, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.core.refresh.permissions import ability_of
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding
from airflow_dynamic_tables.core.refresh.reasons import OnChange
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import expand, replace_functions, replace_tables, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, Target, refusals
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CatalogNotFoundError,
    ConfigurationError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.yaml_files.documents import line_and_column

_SPARKS_OWN = ("builtin", "session")
"""Databases in Spark's catalog ``system`` whose functions are not looked up in catalogs."""


def known_function(workspace: Workspace, name: TableIdentifier) -> TableIdentifier | None:
    """Return the lower-case name of a function, as stored in catalogs, if its catalog has it."""
    function = TableIdentifier(name.catalog, name.database, name.table.lower())
    if function.catalog.lower() == "system" or function.database.lower() in _SPARKS_OWN:
        return None
    try:
        return function if workspace.readable(function.catalog).function_exists(function.path) else None
    except CatalogNotFoundError:
        return None


def bind_functions(workspace: Workspace, query: str) -> tuple[str, tuple[FunctionBinding, ...]]:
    """Return the query with every catalog function replaced by a temporary one, and the bindings of these.

    :param query: calls functions of catalogs by their full names, see
        :func:`~airflow_dynamic_tables.services.queries.inline_views`.
    :raises ConfigurationError: if the language of a function is not allowed.
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

    return replace_functions(Cache.of_user().analyse(query), temporary), tuple(bound.values())


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
        deterministic=properties.get("deterministic") == "true",
    )


def _uris(text: str | None) -> tuple[str, ...]:
    return tuple(uri.strip() for uri in (text or "").split(",") if uri.strip())


Sources = Mapping[TableIdentifier, Source]
Names = tuple[TableIdentifier, ...]


def inline_views(workspace: Workspace, table: DynamicTable, sources: Sources) -> DynamicTable:
    """Return the table with all views of catalogs inlined, and functions with their full names in its query.

    A function without a database is looked up in the database of the table or view that calls it. ``on_change`` of a view is
    that of each table below it.

    :raises ConfigurationError: if a source declared as a view is not one.
    :raises CatalogError: if a view cannot be expanded, or the table reads itself through views.
    """
    query = name_functions(workspace, table.expanded_query, table.identifier)
    views = [name for name in table.upstream if name in sources and sources[name].is_view]
    if not views:
        return replace(table, expanded_query=query)
    inlined = {view: _inline(workspace, view, sources, (view,)) for view in views}
    upstream = [read for name in table.upstream for read in (inlined[name][1] if name in inlined else (name,))]
    check_no_circle(workspace, table.identifier, upstream)
    return replace(
        table,
        expanded_query=replace_tables(Cache.of_user().analyse(query), {view: text for view, (text, _) in inlined.items()}),
        upstream=tuple(dict.fromkeys(upstream)),
        on_change=_on_change_below(table, {view: names for view, (_, names) in inlined.items()}),
    )


_CAUTION = (OnChange.IGNORE, OnChange.AFFECTED, OnChange.REFRESH)
"""From the policy that refreshes least to the one that refreshes most."""


def _on_change_below(table: DynamicTable, views: Mapping[TableIdentifier, Names]) -> dict[str, OnChange]:
    """Return the policy of each table below the query; of one that is read in several ways, the most cautious one."""
    found: dict[str, OnChange] = {}
    for name in table.upstream:
        policy = table.on_change.get(str(name), OnChange.REFRESH)
        for read in map(str, views.get(name, (name,))):
            found[read] = max(found.get(read, policy), policy, key=_CAUTION.index)
    return {read: policy for read, policy in found.items() if policy is not OnChange.REFRESH}


def name_functions(workspace: Workspace, query: str, caller: TableIdentifier) -> str:
    """Return the query with the full name of every catalog function. Functions in no catalog are left to Spark.

    :param caller: the table or view of the query.
    """

    def full(parts: tuple[str, ...]) -> str | None:
        name = known_function(workspace, TableIdentifier(*_full(parts, caller))) if len(parts) <= 3 else None
        return name.sql if name is not None else None

    return replace_functions(Cache.of_user().analyse(query), full)


def tables_named(analysis: Analysis, reader: TableIdentifier) -> Names:
    """Return the full name of every table reference in a query.

    :param reader: the table or view of the query, whose catalog and database apply to shorter names.
    :raises CatalogError: if a name has more than three parts.
    """
    names = []
    for reference in analysis.references:
        parts = tuple(part.text for part in reference.parts)
        if len(parts) > 3:
            raise CatalogError(f"{reader} names {'.'.join(parts)}, which has more than three parts: catalog.database.table.")
        names.append(TableIdentifier(*_full(parts, reader)))
    return tuple(names)


def check_no_circle(workspace: Workspace, start: TableIdentifier, reads: Sequence[TableIdentifier]) -> None:
    """Check that no upstream table or view in the catalogs reads ``start``.

    :raises CatalogError: if one does; the message contains the path.
    """
    ways: list[Names] = [(start, name) for name in reads]
    seen: set[TableIdentifier] = set()
    while ways:
        way = ways.pop()
        if way[-1] == start:
            raise CatalogError(f"{start} would read itself: {' -> '.join(map(str, way))}.")
        if way[-1] not in seen:
            seen.add(way[-1])
            entry = _entry(workspace, way[-1])
            if entry is not None and not isinstance(entry, CatalogTable):
                ways += [(*way, name) for name in tables_named(Cache.of_user().analyse(entry.expanded_query), way[-1])]


def _inline(workspace: Workspace, view: TableIdentifier, sources: Sources, trail: Names) -> tuple[str, Names]:
    entry = _entry(workspace, view)
    if not isinstance(entry, CatalogView):
        what = "does not exist" if entry is None else "is a table"
        raise ConfigurationError(f"Source {view} is declared as a view but {what} in catalog {view.catalog}.")
    analysis = Cache.of_user().analyse(name_functions(workspace, entry.expanded_query, view))
    if analysis.problems:
        raise CatalogError(f"View {view} cannot be expanded: {analysis.problems[0].message}.")

    if forbidden := refusals(analysis.needs, workspace.settings.allowed):
        place = ":".join(map(str, line_and_column(analysis.text, forbidden[0].offset)))
        raise ConfigurationError(f"View {view}:{place}: {forbidden[0].message}.")

    targets: list[Target] = []
    upstream: list[TableIdentifier] = []
    for name in tables_named(analysis, view):
        if name in trail:
            raise CatalogError(f"Views read each other in a circle: {' -> '.join(map(str, (*trail, name)))}.")
        if _is_view(workspace, name, sources):
            sql, reads = _inline(workspace, name, sources, (*trail, name))
        else:
            sql = name.sql
            reads = (name,)
        targets.append(Target(name, sql))
        upstream += reads

    if unclear := unclear_names(analysis, targets):
        raise CatalogError(f"View {view} cannot be expanded: {unclear[0].message}.")
    return f"(\n{expand(analysis, targets).strip()}\n)", tuple(dict.fromkeys(upstream))


def _is_view(workspace: Workspace, name: TableIdentifier, sources: Sources) -> bool:
    if name in sources:
        return sources[name].is_view
    return isinstance(_entry(workspace, name), CatalogView)


def _entry(workspace: Workspace, name: TableIdentifier) -> AnyTable | None:
    """Return the catalog entry with that name; ``None`` if there is none, or only Iceberg can read it."""
    try:
        return workspace.readable(name.catalog).get_table(name.path)
    except (TableNotFoundError, CatalogNotFoundError, UnsupportedError):
        return None


def _full(parts: tuple[str, ...], place: TableIdentifier) -> tuple[str, str, str]:
    catalog, database, name = (place.catalog, place.database)[: 3 - len(parts)] + parts
    return catalog, database, name
