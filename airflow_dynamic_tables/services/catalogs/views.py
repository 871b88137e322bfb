"""Views of catalogs: made from a query, with every name in full, and dropped."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Problem, Target, analyse
from airflow_dynamic_tables.exceptions import DefinitionError, TableAlreadyExistsError, TableNotFoundError
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.queries.views import check_no_circle, name_functions, tables_named
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.yaml_files.texts import line_and_column


def create_view(
    workspace: Workspace, view: TableIdentifier, query: str, comment: str | None = None, *, replace: bool = False
) -> CatalogView:
    """Make a view; names in its query that are short mean tables and functions of its own catalog and database.

    :param replace: put it in the place of a view that has the name already.
    :raises ConfigurationError: when the name may not be one.
    :raises DefinitionError: when the query is no SELECT; each mistake begins with its line and column.
    :raises CatalogError: when the view would read itself.
    :raises DatabaseNotFoundError: when its database is missing.
    :raises TableAlreadyExistsError: when the name is taken.
    """
    check_names(view.catalog, view.database, view.table)
    written = analyse(query)
    if written.problems:
        raise _mistakes(query, written.problems)
    if unclear := unclear_names(written, [Target(name, name.sql) for name in tables_named(written, view)]):
        raise _mistakes(query, unclear)

    analysis = analyse(name_functions(workspace, query, view))
    reads = tables_named(analysis, view)
    check_no_circle(workspace, view, reads)
    created = CatalogView(
        original_query=query.strip(),
        expanded_query=expand(analysis, [Target(name, name.sql) for name in reads]).strip(),
        comment=comment,
    )

    catalog = workspace.catalog(view.catalog)
    try:
        catalog.create_table(view.path, created)
    except TableAlreadyExistsError:
        if not replace:
            raise
        catalog.alter_table(view.path, created)
    return created


def _mistakes(query: str, problems: tuple[Problem, ...]) -> DefinitionError:
    places = [":".join(map(str, line_and_column(query, problem.offset))) for problem in problems]
    return DefinitionError(tuple(f"{place}: {problem.message}" for place, problem in zip(places, problems, strict=True)))


def drop_view(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False) -> str:
    """Drop a view, and nothing that is no view; its full name.

    :raises TableNotFoundError: when there is no view of that name.
    """
    view = workspace.catalogs.resolve(name)
    catalog = workspace.catalog(view.catalog)
    if catalog.table_exists(view.path) and not isinstance(catalog.get_table(view.path), CatalogView):
        raise TableNotFoundError(f"{view} is a table, not a view.")
    catalog.drop_table(view.path, ignore_if_not_exists=ignore_if_not_exists)
    return str(view)
