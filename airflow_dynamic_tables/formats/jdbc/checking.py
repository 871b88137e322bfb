"""What has to be so before a stage is published: it is what the job says of it, and within its plan; a new name is free."""

from __future__ import annotations

from airflow_dynamic_tables.clients.postgres.making import occupant
from airflow_dynamic_tables.clients.postgres.names import TableName
from airflow_dynamic_tables.clients.postgres.own_tables import is_made_here
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, literal, quote
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION, describe
from airflow_dynamic_tables.exceptions import StageRejectedError, TableAlreadyExistsError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_rows
from airflow_dynamic_tables.formats.jdbc import records
from airflow_dynamic_tables.formats.jdbc.physical import ServerTable, find

_TEXTS = ("text", "character varying", "character")


_REWRITING = """
SELECT DISTINCT 'the trigger ' || tgname AS what FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'
  AND (tgrelid = %(oid)s OR tgrelid IN (SELECT relid FROM pg_partition_tree(%(oid)s::bigint::regclass)))
UNION ALL SELECT 'the rule ' || rulename FROM pg_rewrite WHERE ev_class = %(oid)s AND ev_enabled <> 'D' ORDER BY 1
"""


def check_free(database: OpenDatabase, name: TableName) -> None:
    """Check that nothing has the name of a new table.

    :raises TableAlreadyExistsError: when something has it that is read as a table; says whose that is.
    :raises StageRejectedError: when something else has it.
    """
    there = occupant(database, name)
    if there is None:
        return
    if not there.is_table:
        raise StageRejectedError(f"{name} is {there.kind} of user {there.owner} and no table; drop it, or choose another name.")
    record = records.look(database, name).record
    by = f", which {record.version.token} made" if record is not None and is_made_here(database, name) else ""
    raise TableAlreadyExistsError(f"{name} is there already, {there.kind} of user {there.owner}{by}; it stays as it is.")


def checked_stage(database: OpenDatabase, name: TableName, request: CommitRequest) -> ServerTable:
    """The stage, when it is what the result says and what was planned.

    :raises StageRejectedError: says what is wrong.
    """
    stage = find(database, name)
    if stage is None:
        raise StageRejectedError(f"The stage table {name} is missing or damaged; refresh again.")
    # A job that somebody believed dead may still write into it.
    database.run(f"LOCK TABLE {name.quoted} IN ACCESS EXCLUSIVE MODE")
    wanted = [column.name for column in request.result.columns]
    if [*stage.types] != wanted:
        raise StageRejectedError(f"The stage table {name} has the columns {', '.join(stage.types)}, not {', '.join(wanted)}.")
    _check_moments(stage, request)
    planned = stage.condition(request.partitions)
    texts = [key for key in request.partition_keys if stage.types.get(key, "").partition("(")[0] in _TEXTS]
    reserved = " OR ".join(f"{quote(key)}::text = {literal(NULL_PARTITION)}" for key in texts) or "false"
    (counted,) = database.rows(
        f"SELECT count(*) AS rows, count(*) FILTER (WHERE ({planned}) IS NOT TRUE) AS strange, "
        f"count(*) FILTER (WHERE {reserved}) AS reserved FROM {name.quoted}"
    )
    check_rows(counted.rows, request.result)
    if counted.reserved:
        raise StageRejectedError(
            f"A partition key has the text {NULL_PARTITION}, which stands for null; the query has to replace it."
        )
    if counted.strange:
        raise StageRejectedError(
            f"A row is of partition {_first_strange(database, stage, planned, request)}, which was not planned."
        )
    return stage


def _check_moments(stage: ServerTable, request: CommitRequest) -> None:
    """Check that no planned value is a time of no time zone for a column of moments: the server may have another zone than Spark.

    :raises StageRejectedError: names the key.
    """
    values = ((key, value) for spec in request.partitions for key, value in spec.items())
    for key, value in values:
        if value not in (None, NULL_PARTITION) and stage.types.get(key, "").endswith(" with time zone"):
            raise StageRejectedError(
                f"Partition key {key} is a moment, and {value} is another one in every time zone, so the partition cannot be "
                "replaced; CAST the key in the query AS TIMESTAMP_NTZ, DATE or STRING."
            )


def _first_strange(database: OpenDatabase, stage: ServerTable, planned: str, request: CommitRequest) -> str:
    keys = ", ".join(f"{quote(key)}::text" for key in request.partition_keys) or "'' AS nothing"
    rows = database.rows(f"SELECT {keys} FROM {stage.name.quoted} WHERE ({planned}) IS NOT TRUE LIMIT 1")
    return shown(describe(dict(zip(request.partition_keys, rows[0], strict=False))))


def check_conversions(database: OpenDatabase, stage: ServerTable, target: ServerTable) -> None:
    """Check that the columns of a table, whose types somebody may have changed, hold the staged values as they are.

    :raises StageRejectedError: when one would be rounded or cut off.
    """
    types = target.types
    for name, kind in stage.types.items():
        if types.get(name, kind) == kind:
            continue
        column = quote(name)
        back = f"CAST(CAST({column} AS {types[name]}) AS {kind}) IS DISTINCT FROM {column}"
        lost = database.rows(f"SELECT {column}::text AS value FROM {stage.name.quoted} WHERE {back} LIMIT 1")
        if lost:
            raise StageRejectedError(
                f"Column {name} of {target.name} is {types[name]}, which cannot hold {shown(str(lost[0].value))} of type {kind}; "
                "alter the column, or CAST it in the query."
            )


def check_inserted(database: OpenDatabase, stage: ServerTable, target: ServerTable, condition: str) -> None:
    """Check that triggers and rules of a table left the rows as they were staged.

    :param target: the table before columns were added to it.
    :param condition: SQL that is true for the rows that were inserted, of which there are as many as staged ones.
    :raises StageRejectedError: names the triggers and rules of the table.
    """
    rewriting = [row.what for row in database.rows(_REWRITING, {"oid": target.oid})]
    if not rewriting:
        return
    database.run("SET CONSTRAINTS ALL IMMEDIATE")  # triggers that would wait for the end of the transaction
    # As texts: not all types can be compared. Some collations take different texts for equal.
    types = stage.types | target.types
    staged = ", ".join(f'CAST({quote(name)} AS {types[name]})::text COLLATE "C"' for name in stage.types)
    held = ", ".join(f'{quote(name)}::text COLLATE "C"' for name in stage.types)
    missing = f"SELECT {staged} FROM {stage.name.quoted} EXCEPT ALL SELECT {held} FROM {target.name.quoted} WHERE {condition}"
    if database.rows(f"SELECT 1 FROM ({missing} LIMIT 1) AS missing"):
        raise StageRejectedError(
            f"{target.name} does not hold the rows that the query returned: it has {' and '.join(rewriting[:5])}. Nothing was "
            "published; drop what changes the rows, or let it write them as they come."
        )
