"""The hook that opens a workspace, the ledger and catalogs, from an Airflow connection."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, conf

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogPartition
from airflow_dynamic_tables.clients.connections import Connection as ServerConnection
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import ConfigurationError, DynamicTableError
from airflow_dynamic_tables.hooks.metrics import emit_outcome
from airflow_dynamic_tables.runners.registry import runner_for
from airflow_dynamic_tables.services import catalogs as databases
from airflow_dynamic_tables.services import catalogs as functions
from airflow_dynamic_tables.services import catalogs as listing
from airflow_dynamic_tables.services import catalogs as views
from airflow_dynamic_tables.services.catalogs import CatalogSummary, ObjectDetails, ObjectSummary
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, Purpose, QueryPlace, WantedTable, named_new_table
from airflow_dynamic_tables.services.maintenance.sweeping import check_available
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.settings import WorkspaceSettings, embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from airflow_dynamic_tables.services.writes.quarantine import publish, reject

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_P = ParamSpec("_P")
_T = TypeVar("_T")

DEFAULT_CONNECTION = "dynamic_tables_default"


def configured_connection() -> str:
    """Return the connection id from Airflow's configuration: option ``connection`` of section ``dynamic_tables``."""
    return str(conf.get("dynamic_tables", "connection", fallback=DEFAULT_CONNECTION))


class DynamicTableCatalogHook(BaseHook):
    """Access to the state of dynamic tables by a connection of type ``dynamic_tables``.

    Host, port, login, password and schema identify a PostgreSQL database; extra ``database_url`` replaces them, extra
    ``warehouse`` is the folder of the tables' files, extra ``catalogs_file`` names the catalogs. Missing values, and all values
    without a default connection, are those of :func:`embedded_settings`.

    Catalog objects are identified by names of one, two or three parts. Methods raise the errors of the functions with the same
    name in :mod:`~airflow_dynamic_tables.services.catalogs`.
    """

    conn_name_attr = "conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "dynamic_tables"
    hook_name = "Dynamic tables"

    def __init__(self, conn_id: str = DEFAULT_CONNECTION, catalogs_file: str | Path | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id
        self.catalogs_file = Path(catalogs_file) if catalogs_file else None

    def settings(self) -> WorkspaceSettings:
        """Read the connection.

        :raises ConfigurationError: if it does not exist or is incomplete.
        """
        embedded = embedded_settings(os.environ, self.catalogs_file)
        embedded = replace(embedded, connections=self.find_connection, listeners=(emit_outcome,))
        try:
            connection = self.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            if self.conn_id == DEFAULT_CONNECTION:
                return embedded
            raise ConfigurationError(
                f"Connection {self.conn_id!r} does not exist; create it with type 'dynamic_tables', for example with "
                f"airflow connections add {self.conn_id} --conn-type dynamic_tables --conn-host HOST --conn-schema DATABASE"
            ) from error
        extra = connection.extra_dejson
        catalogs_file = embedded.catalogs_file or (Path(extra["catalogs_file"]) if extra.get("catalogs_file") else None)
        return replace(
            embedded,
            database_url=_database_url(connection, extra) or embedded.database_url,
            warehouse=str(extra.get("warehouse") or embedded.warehouse).rstrip("/"),
            catalogs_file=catalogs_file,
        )

    def find_connection(self, conn_id: str) -> ServerConnection:
        """Return an Airflow connection named by the catalogs file or a source.

        :raises ConfigurationError: if it does not exist.
        """
        try:
            connection = self.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                f"Connection {conn_id!r} does not exist; create it: airflow connections add {conn_id} ..."
            ) from error
        return _server(connection)

    def get_conn(self) -> Workspace:
        """Open ledger and catalogs as a context manager."""
        return open_workspace(self.settings())

    def _call(self, service: Callable[Concatenate[Workspace, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self.get_conn() as workspace:
            return service(workspace, *args, **kwargs)

    def publish(self, token: str) -> Version:
        """Commit a quarantined stage; idempotent.

        :raises ConfigurationError: see :func:`~airflow_dynamic_tables.services.writes.quarantine.publish`, also for other errors.
        """
        return self._call(publish, token)

    def abort(self, token: str, reason: str) -> None:
        """Delete a quarantined stage; idempotent.

        :raises ConfigurationError: if there is no such stage, or it is not quarantined.
        """
        self._call(reject, token, reason)

    def catalogs(self) -> list[CatalogSummary]:
        """Return all catalogs in the catalogs file."""
        return self._call(listing.catalogs)

    def databases(self, catalog: str | None = None) -> list[ObjectSummary]:
        """Return the databases of a catalog; default: the default catalog."""
        return self._call(listing.databases, catalog)

    def tables(self, database: str | None = None) -> list[ObjectSummary]:
        """Return the tables, dynamic tables and views of a database."""
        return self._call(listing.tables, database)

    def views(self, database: str | None = None) -> list[ObjectSummary]:
        """Return the views of a database."""
        return self._call(listing.views, database)

    def functions(self, database: str | None = None) -> list[ObjectSummary]:
        """Return the functions of a database."""
        return self._call(listing.functions, database)

    def partitions(self, table: str, spec: Mapping[str, str] | None = None) -> list[CatalogPartition]:
        """Return the partitions of a table that match a spec, with their sizes."""
        return self._call(listing.partitions, table, spec)

    def describe(self, name: str) -> ObjectDetails:
        """Return the table, view, function or database with a name."""
        return self._call(listing.describe, name)

    def create_database(self, name: str, value: CatalogDatabase | None = None, *, ignore_if_exists: bool = False) -> str:
        """Create a database, and return its full name."""
        return self._call(databases.create_database, name, value or CatalogDatabase(), ignore_if_exists=ignore_if_exists)

    def drop_database(self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False) -> str:
        """Drop a database, and return its full name."""
        return self._call(databases.drop_database, name, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade)

    def create_view(self, name: str, query: str, comment: str | None = None, *, replace: bool = False) -> str:
        """Create a view, and return its full name."""
        with self.get_conn() as workspace:
            view = workspace.catalogs.resolve(name)
            views.create_view(workspace, view, query, comment, replace=replace)
            return str(view)

    def drop_view(self, name: str, *, ignore_if_not_exists: bool = False) -> str:
        """Drop a view, and return its full name."""
        return self._call(views.drop_view, name, ignore_if_not_exists=ignore_if_not_exists)

    def create_function(self, name: str, function: CatalogFunction, *, replace: bool = False) -> str:
        """Create a function, and return its full name."""
        return self._call(functions.create_function, name, function, replace=replace)

    def drop_function(self, name: str, *, ignore_if_not_exists: bool = False) -> str:
        """Drop a function, and return its full name."""
        return self._call(functions.drop_function, name, ignore_if_not_exists=ignore_if_not_exists)

    def create_table_as(
        self, table: str, query: str, spark: str = "local[*]", purpose: Purpose = Purpose.CREATE, **how: Any
    ) -> Created:
        """Create a table from a query, or replace one; on failure, no table exists.

        :param spark: a Spark master, or the address of a Spark Connect server.
        :param purpose: how to handle an existing table.
        :param how: ``format``, ``partition_keys``, ``comment``, ``timezone``, see
            :class:`~airflow_dynamic_tables.services.ctas.wanted.WantedTable`.
        :raises DynamicTableError: see :func:`~airflow_dynamic_tables.services.ctas.running.create_table_as`.
        """
        with self.get_conn() as workspace:
            scope = (workspace.catalogs.default_catalog, workspace.catalogs.default_database)
            place = QueryPlace(Path("query"), query)
            wanted = WantedTable(named_new_table(table, scope), query, scope, place, purpose, **how)
            runner = runner_for(wanted.spark, spark, self.log.info)
            token = str(uuid4())

            def submit(plan: RefreshPlan) -> None:
                runner.run(plan, job_environment(workspace, plan))

            owner = f"DynamicTableCatalogHook.create_table_as ({token})"
            return create_table_as(workspace, Definitions(), wanted, (token, owner), submit, runner.stop)

    def test_connection(self) -> tuple[bool, str]:
        """Connect to the ledger and to every catalog in the catalogs file."""
        try:
            with self.get_conn() as workspace:
                check_available(workspace)
        except DynamicTableError as error:
            return False, str(error)
        return True, "Ledger and catalogs answer."


def _database_url(connection: Connection, extra: dict[str, Any]) -> str | None:
    if extra.get("database_url"):
        return str(extra["database_url"])
    if not connection.host:
        return None
    if not connection.schema:
        raise ConfigurationError(f"Connection {connection.conn_id!r} has a host but no database; put its name into 'schema'.")
    return _server(connection).url("postgresql")


def _server(connection: Connection) -> ServerConnection:
    fields = {name: getattr(connection, name) or None for name in ("host", "port", "login", "password", "schema")}
    return ServerConnection(**fields, extra={key: str(value) for key, value in connection.extra_dejson.items()})
