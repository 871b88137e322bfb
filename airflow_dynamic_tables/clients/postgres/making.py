"""Whether a table can be made in a PostgreSQL database: who has its name already, and what its user may do there."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_dynamic_tables.clients.postgres.names import COMMITS, ENTRIES, TableName
from airflow_dynamic_tables.clients.postgres.own_tables import check_schema, no_right, no_right_on_own
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresServer
from airflow_dynamic_tables.clients.postgres.tables import list_databases
from airflow_dynamic_tables.exceptions import ConfigurationError

_OCCUPANTS = """
SELECT c.relkind::text AS kind, pg_get_userbyid(c.relowner) AS owner
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s AND c.relname = %(table)s
UNION ALL SELECT 'type', pg_get_userbyid(t.typowner)
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE n.nspname = %(schema)s AND t.typname = %(table)s
  AND t.typrelid = 0 AND NOT EXISTS (SELECT 1 FROM pg_type e WHERE e.typarray = t.oid)
"""
"""What has a name that a table would have. A type of arrays is not in the way: the server gives it another name."""

_TABLES = {"r": "a table", "p": "a partitioned table", "v": "a view", "m": "a materialized view", "f": "a foreign table"}
_OTHERS = {"S": "a sequence", "i": "an index", "I": "an index", "c": "a type", "type": "a type"}

_RIGHTS = """
SELECT current_user AS name, current_setting('transaction_read_only') = 'on' AS is_read_only, pg_is_in_recovery() AS is_standby,
  has_schema_privilege(%(schema)s, 'USAGE') AND has_schema_privilege(%(schema)s, 'CREATE') AS may_create
"""

_FORBIDDEN = """
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed (privilege)
WHERE n.nspname = %(schema)s AND c.relname = ANY(%(tables)s) AND NOT has_table_privilege(c.oid, needed.privilege)
"""


@dataclass(frozen=True, slots=True)
class Occupant:
    """What has a name: its kind for people, whether it can be read as a table, and the user that it belongs to."""

    kind: str
    is_table: bool
    owner: str


def occupant(database: OpenDatabase, name: TableName) -> Occupant | None:
    """What has a name that a table would have; ``None``: nothing that anybody can see by now."""
    rows = database.rows(_OCCUPANTS, {"schema": name.schema, "table": name.table})
    if not rows:
        return None
    kind = rows[0].kind
    return Occupant(_TABLES.get(kind) or _OTHERS.get(kind, "something else"), kind in _TABLES, rows[0].owner)


def check_rights(server: PostgresServer, database: str, name: TableName) -> None:
    """Check that the user may make a table and what tells of its versions.

    :raises ConfigurationError: when there is no such database or schema, or the user may not write there.
    """
    known = list_databases(server, server.database or database)  # no other: the user may not be let into it
    if database not in known:
        raise ConfigurationError(
            f"The server has no database {database}, and none is made here: run CREATE DATABASE there, or name one of "
            f"{', '.join(known)}."
        )
    with server.connected(database) as opened:
        check_schema(opened, database, name)
        (rights,) = opened.rows(_RIGHTS, {"schema": name.schema})
        if rights.is_read_only:
            why = "the server is a standby" if rights.is_standby else "default_transaction_read_only is on"
            raise ConfigurationError(
                f"Sessions of user {rights.name} in database {database} can only read ({why}), so {name} cannot be made; name "
                "a server, user and options that can write."
            )
        if not rights.may_create:
            raise no_right(rights.name, database, name)
        if opened.rows(_FORBIDDEN, {"schema": name.schema, "tables": [COMMITS, ENTRIES]}):
            raise no_right_on_own(rights.name, name)
