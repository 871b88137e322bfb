"""What only catalogs know of a query: their views, which are inlined, and their functions, which get their full names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_dynamic_tables.catalog.values import AnyTable, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import expand, replace_functions, replace_tables, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Analysis, Target, analyse, refusals
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    CatalogNotFoundError,
    ConfigurationError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.services.queries.functions import known_function
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.yaml_files.texts import line_and_column

Sources = Mapping[TableIdentifier, Source]
Names = tuple[TableIdentifier, ...]


def inline_views(workspace: Workspace, table: DynamicTable, sources: Sources) -> DynamicTable:
    """The same table, whose query reads no view of a catalog but what these read, and calls functions by their full names.

    A function without a database is looked up in the database of the table or view that calls it.

    :raises ConfigurationError: when a source is declared as a view and is none.
    :raises CatalogError: when a view cannot be expanded, or the table reads itself through views.
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
        expanded_query=replace_tables(query, {view: text for view, (text, _) in inlined.items()}),
        upstream=tuple(dict.fromkeys(upstream)),
    )


def name_functions(workspace: Workspace, query: str, caller: TableIdentifier) -> str:
    """The query with every function that a catalog has by its full name; what no catalog has is left to Spark.

    :param caller: the table or view whose query it is.
    """

    def full(parts: tuple[str, ...]) -> str | None:
        name = known_function(workspace, TableIdentifier(*_full(parts, caller))) if len(parts) <= 3 else None
        return name.sql if name is not None else None

    return replace_functions(query, full)


def tables_named(analysis: Analysis, reader: TableIdentifier) -> Names:
    """The table of every reference of a query in full.

    :param reader: the table or view whose query it is: its catalog and database are those of shorter names.
    :raises CatalogError: for a name of more than three parts.
    """
    names = []
    for reference in analysis.references:
        parts = tuple(part.text for part in reference.parts)
        if len(parts) > 3:
            raise CatalogError(f"{reader} names {'.'.join(parts)}, which has more than three parts: catalog.database.table.")
        names.append(TableIdentifier(*_full(parts, reader)))
    return tuple(names)


def check_no_circle(workspace: Workspace, start: TableIdentifier, reads: Sequence[TableIdentifier]) -> None:
    """Check that nothing that is read reads ``start`` itself, as far as catalogs know.

    :raises CatalogError: names the way.
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
                ways += [(*way, name) for name in tables_named(analyse(entry.expanded_query), way[-1])]


def _inline(workspace: Workspace, view: TableIdentifier, sources: Sources, trail: Names) -> tuple[str, Names]:
    """A view as a subquery that reads no view, and the tables it reads."""
    entry = _entry(workspace, view)
    if not isinstance(entry, CatalogView):
        what = "does not exist" if entry is None else "is a table"
        raise ConfigurationError(f"Source {view} is declared as a view but {what} in catalog {view.catalog}.")
    analysis = analyse(name_functions(workspace, entry.expanded_query, view))
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
    """What a catalog has under that name; ``None`` when it has nothing, or a table that only Iceberg understands."""
    try:
        return workspace.readable(name.catalog).get_table(name.path)
    except (TableNotFoundError, CatalogNotFoundError, UnsupportedError):
        return None


def _full(parts: tuple[str, ...], place: TableIdentifier) -> tuple[str, str, str]:
    catalog, database, name = (place.catalog, place.database)[: 3 - len(parts)] + parts
    return catalog, database, name
