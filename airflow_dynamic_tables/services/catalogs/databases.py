"""Databases of catalogs are made and dropped."""

from __future__ import annotations

from airflow_dynamic_tables.catalog.values import CatalogDatabase
from airflow_dynamic_tables.core.identifiers import join_name
from airflow_dynamic_tables.services.catalogs.listing import database_named
from airflow_dynamic_tables.services.names import check_names
from airflow_dynamic_tables.services.workspace import Workspace


def create_database(workspace: Workspace, name: str, value: CatalogDatabase, *, ignore_if_exists: bool = False) -> str:
    """Make a database; its full name.

    :raises ConfigurationError: when the name may not be one.
    :raises DatabaseAlreadyExistsError: when the name is taken.
    """
    catalog, database = database_named(workspace, name)
    check_names(catalog, database)
    workspace.catalog(catalog).create_database(database, value, ignore_if_exists=ignore_if_exists)
    return join_name(catalog, database)


def drop_database(workspace: Workspace, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> str:
    """Drop a database; its full name.

    :raises DatabaseNotFoundError: when it is missing.
    :raises NotEmptyError: when it holds anything and ``cascade`` is false.
    """
    catalog, database = database_named(workspace, name)
    workspace.catalog(catalog).drop_database(database, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)
    return join_name(catalog, database)
