"""PyIceberg's Hive metastore client with timeouts, and with compare-and-swap in place of locks.

A lock requires a metastore with transactions, and remains when its owner is killed. Iceberg's Java library also compares when its
locks are disabled, which a table property does for each of its writers; a writer that locks would overwrite commits that do not.
The comparison also prevents a rename from undoing a commit.
"""

from __future__ import annotations

from threading import local
from typing import Any

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import EnvironmentContext, InvalidOperationException, LockResponse, LockState, MetaException, Table
from pyiceberg.catalog.hive import HIVE_KERBEROS_AUTH, HIVE_KERBEROS_SERVICE_NAME, HiveCatalog, _HiveClient
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport import TTransport

_SECONDS = 120
"""Timeout of a metastore call in seconds; PyIceberg's own client waits forever."""

_COMPARISON_FAILED = "The table has been modified"
"""The metastore's error when an expected parameter has another value."""

_TYPES_STAY = "have types incompatible with the existing columns"
"""The metastore's error when the type of the column in some position changes, even if Iceberg permits the change."""

_TYPES_TODO = "set hive.metastore.disallow.incompatible.col.type.changes to false in the metastore"

_COMPARED = {"engine.hive.lock-enabled": "false"}
"""Property of a table that makes Iceberg's Java library compare instead of lock."""

_NO_LOCK = LockResponse(lockid=0, state=LockState.ACQUIRED)


class PatientMetastore(HiveCatalog):
    """A Hive catalog whose calls time out, and whose tables all writers compare; of several addresses the first is used."""

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> IcebergTable:
        """See :meth:`HiveCatalog.create_table`."""
        return super().create_table(identifier, schema, location, partition_spec, sort_order, {**properties, **_COMPARED})

    def commit_table(
        self, table: IcebergTable, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See :meth:`HiveCatalog.commit_table`; the first commit to a table of another engine sets the property."""
        if not _COMPARED.items() <= table.metadata.properties.items():
            updates = (*updates, SetPropertiesUpdate(updates=_COMPARED))
        return super().commit_table(table, requirements, updates)

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _Connection(
            properties["uri"].split(",")[0],
            properties.get("ugi"),
            property_as_bool(properties, HIVE_KERBEROS_AUTH, False),
            properties.get(HIVE_KERBEROS_SERVICE_NAME, "hive"),
        )


class _Connection(_HiveClient):
    """A connection with a socket per use: PyIceberg's single socket breaks when threads share it or uses are nested."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._opened = local()

    def __enter__(self) -> Client:
        transport = self._init_thrift_transport()
        transport.open()
        self._opened.transports = [*getattr(self._opened, "transports", ()), transport]
        client = _Comparing(TBinaryProtocol(transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client

    def __exit__(self, *error: object) -> None:
        self._opened.transports.pop().close()

    def _init_thrift_transport(self) -> TTransport:
        transport = super()._init_thrift_transport()
        # The socket is a private attribute of both Thrift transports.
        socket = getattr(transport, "_TBufferedTransport__trans", None) or transport._trans
        socket.setTimeout(_SECONDS * 1000)
        return transport


class _Comparing(Client):  # type: ignore[misc]  # Thrift's code has no types
    """A client that alters a table only if its metadata file is still the one that was read."""

    def lock(self, rqst: Any) -> LockResponse:  # noqa: ARG002 - Thrift's name of it
        return _NO_LOCK

    def unlock(self, rqst: Any) -> None:
        """Do nothing, because nothing is locked."""

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Table, environment_context: EnvironmentContext
    ) -> None:
        # A commit names the metadata file before its own; a rename keeps the one that it read.
        is_renaming = (dbname, tbl_name) != (new_tbl.dbName, new_tbl.tableName)
        key = "metadata_location" if is_renaming else "previous_metadata_location"
        comparison = {"expected_parameter_key": "metadata_location", "expected_parameter_value": new_tbl.parameters[key]}
        context = EnvironmentContext({**environment_context.properties, **comparison})
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, context)
        except InvalidOperationException as error:
            if _TYPES_STAY in str(error.message):
                raise BadRequestError(f"{error.message}; {_TYPES_TODO}") from error
            raise
        except MetaException as error:
            if _COMPARISON_FAILED in str(error.message):
                raise CommitFailedException(f"Table {dbname}.{tbl_name} was changed by others meanwhile.") from error
            raise
