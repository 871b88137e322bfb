"""Functions of catalogs are made and dropped."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import CatalogFunction
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.workspace import Workspace


def create_function(workspace: Workspace, name: str, function: CatalogFunction, *, replace: bool = False) -> str:
    """Make a function; its full name.

    :param replace: put it in the place of a function that has the name already.
    :raises ConfigurationError: when the name may not be one, or a Python function is not named as ``module:callable``.
    :raises DatabaseNotFoundError: when its database is missing.
    :raises FunctionAlreadyExistsError: when the name is taken.
    """
    module, colon, called = function.name.partition(":")
    if function.language == "python" and not (module and colon and called):
        raise ConfigurationError(f"{function.name!r} names no Python function; write module:callable.")
    identifier = workspace.catalogs.resolve(name)
    check_names(identifier.catalog, identifier.database, identifier.table)
    catalog = workspace.catalog(identifier.catalog)
    if replace and catalog.function_exists(identifier.path):
        catalog.alter_function(identifier.path, function)
    else:
        catalog.create_function(identifier.path, function)
    return str(identifier)


def drop_function(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False) -> str:
    """Drop a function; its full name.

    :raises FunctionNotFoundError: when it is missing.
    """
    identifier = workspace.catalogs.resolve(name)
    workspace.catalog(identifier.catalog).drop_function(identifier.path, ignore_if_not_exists=ignore_if_not_exists)
    return str(identifier)
