"""Binding: which version of every table a refresh reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_dynamic_tables.catalog.memory import MemoryCatalog
from airflow_dynamic_tables.catalog.values import CatalogTable
from airflow_dynamic_tables.clients.files import fingerprint, list_files
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.schema import spark_ddl
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    NotFoundError,
    TableNotFoundError,
    UnsupportedError,
    UpstreamError,
)
from airflow_dynamic_tables.services.refresh.hive_sources import bind_hive
from airflow_dynamic_tables.services.workspace import Workspace


def bind_sources(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]
) -> tuple[SourceBinding, ...]:
    """Bind every table the query reads to the version it has now; each table is looked at once.

    :raises ConfigurationError: when a source's folder is missing or empty.
    :raises UpstreamError: when a dynamic table has no version yet.
    :raises UnsupportedError: when an Iceberg table cannot be read without the Iceberg runtime.
    """
    bindings = []
    for number, identifier in enumerate(table.upstream):
        source = sources.get(identifier) or _described(workspace, identifier)
        bindings.append(_bind(workspace, table, identifier, source, _view_name(identifier, number)))
    return tuple(bindings)


def _bind(
    workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, source: Source | None, view: str
) -> SourceBinding:
    if source is not None and source.format == "jdbc":
        return _bind_jdbc(workspace, source, view)
    if source is not None and source.format == "hive":
        return bind_hive(workspace, source, view)
    if source is not None and source.format != "iceberg":
        return _bind_files(source, view)
    return _bind_table(workspace, table, identifier, view)


def _described(workspace: Workspace, identifier: TableIdentifier) -> Source | None:
    """A table that only a view names, when its catalog knows no more of it than where its rows are."""
    from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog

    catalog = workspace.readable(identifier.catalog)
    try:
        entry = catalog.get_table(identifier.path)
    except (TableNotFoundError, UnsupportedError):
        return None
    if not isinstance(entry, CatalogTable):
        return None
    if entry.format == "jdbc":
        return Source(identifier, entry.format)
    if entry.format == "iceberg" or not isinstance(catalog, SqlCatalog | MemoryCatalog):
        return None
    schema = spark_ddl(entry.columns)
    return Source(identifier, entry.format, entry.location, entry.partition_keys, schema or None, entry.options)


def job_environment(workspace: Workspace, plan: RefreshPlan) -> dict[str, str]:
    """Environment variables that the driver of a job needs: passwords, which must not stand in a plan or on a command line."""
    from airflow_dynamic_tables.catalog.jdbc.catalog import JdbcCatalog

    found: dict[str, str] = {}
    for source in plan.sources:
        if source.password_variable is not None:
            catalog = workspace.catalogs.get(TableIdentifier.parse(source.identifier).catalog)
            if isinstance(catalog, JdbcCatalog) and catalog.password is not None:
                found[source.password_variable] = catalog.password
    return found


def _bind_jdbc(workspace: Workspace, source: Source, view: str) -> SourceBinding:
    # SQLAlchemy takes long to import, and Airflow imports this module whenever it parses a DAG file.
    from airflow_dynamic_tables.catalog.jdbc.catalog import JdbcCatalog

    catalog = workspace.catalogs.get(source.identifier.catalog)
    if not isinstance(catalog, JdbcCatalog):
        raise ConfigurationError(f"Source {source.identifier} has format jdbc, but catalog {catalog.name} is not of type jdbc.")
    scan = catalog.scan(source.identifier.path, source.options)
    variable = re.sub(r"\W", "_", f"DYNAMIC_TABLES_PASSWORD_{catalog.name.upper()}", flags=re.ASCII)
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format="jdbc",
        version=scan.version,
        options=scan.options,
        password_variable=variable if catalog.password is not None else None,
        has_files=False,
    )


def _view_name(identifier: TableIdentifier, number: int) -> str:
    return re.sub(r"\W", "_", f"{identifier.database}_{identifier.table}_{number}", flags=re.ASCII)


def _bind_files(source: Source, view: str) -> SourceBinding:
    try:
        found = list_files(source.path or "")
    except FileNotFoundError as error:
        raise ConfigurationError(f"Source {source.identifier}: there is nothing at {source.path}.") from error
    if not found and not source.schema:
        raise ConfigurationError(
            f"Source {source.identifier}: no data files under {source.path} and no schema in its definition."
        )
    return SourceBinding(
        identifier=str(source.identifier),
        view=view,
        format=source.format,
        version=fingerprint(found),
        files=tuple(found),
        base_path=source.path if source.partition_keys else None,
        schema=source.schema,
        partition_keys=source.partition_keys,
        options=dict(source.options),
    )


def _bind_table(workspace: Workspace, table: DynamicTable, identifier: TableIdentifier, view: str) -> SourceBinding:
    staging = workspace.staging(identifier, workspace.format_of(identifier))
    try:
        content = staging.read(identifier.path)
    except NotFoundError as error:
        raise UpstreamError(f"{identifier} has no version yet; refresh it first.") from error
    except UnsupportedError:
        if f"spark.sql.catalog.{identifier.catalog}" not in table.spark.conf:
            raise
        return SourceBinding(str(identifier), view, "parquet", staging.snapshot(identifier.path), table=identifier.sql)
    return SourceBinding(
        identifier=str(identifier),
        view=view,
        format=content.format,
        version=content.snapshot,
        files=() if content.parts else content.files,
        base_path=content.base_path,
        schema=content.schema,
        partition_keys=content.partition_keys,
        parts=content.parts,
    )
