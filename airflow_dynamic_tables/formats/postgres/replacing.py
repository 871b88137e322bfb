"""Replace the rows of a table, by a swap with the stage table or by DELETE and INSERT.

A swap carries over the table's structure, which is read beforehand and compared once the table is locked. If part of the
structure cannot be carried over (an obstacle), the rows are deleted and inserted instead.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_dynamic_tables.clients.postgres.ddl import TableName
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresError, literal, quote
from airflow_dynamic_tables.clients.postgres.tables import LOCK_NOT_AVAILABLE
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import CommitRejectedError, SchemaEvolutionError, StageRejectedError
from airflow_dynamic_tables.formats.postgres.checking import DefinedTable, check_conversions, check_inserted, find
from airflow_dynamic_tables.formats.postgres.records import Horizon, lock_for_itself

_OBSTACLES = """
SELECT what FROM (
  SELECT 'it is partitioned' FROM pg_class WHERE oid = {oid} AND relkind <> 'r'
  UNION ALL SELECT 'it is unlogged or temporary' FROM pg_class WHERE oid = {oid} AND relpersistence <> 'p'
  UNION ALL SELECT 'it inherits, or others inherit from it' FROM pg_inherits WHERE inhrelid = {oid} OR inhparent = {oid}
  UNION ALL SELECT 'it has row security' FROM pg_class WHERE oid = {oid} AND (relrowsecurity OR relforcerowsecurity)
  UNION ALL SELECT 'it has the policy ' || polname FROM pg_policy WHERE polrelid = {oid}
  UNION ALL SELECT 'it has the trigger ' || tgname FROM pg_trigger WHERE tgrelid = {oid} AND NOT tgisinternal
  UNION ALL SELECT 'it has the rule ' || rulename FROM pg_rewrite WHERE ev_class = {oid}
  UNION ALL SELECT 'it has the foreign key ' || conname FROM pg_constraint WHERE contype = 'f' AND conrelid = {oid}
  UNION ALL SELECT conrelid::regclass || ' refers to it (' || conname || ')' FROM pg_constraint
    WHERE contype = 'f' AND confrelid = {oid} AND conrelid <> {oid}
  UNION ALL SELECT 'it has the exclusion constraint ' || conname FROM pg_constraint WHERE contype = 'x' AND conrelid = {oid}
  UNION ALL SELECT 'publication ' || p.pubname || ' has it' FROM pg_publication_tables p, pg_class c JOIN pg_namespace n
    ON n.oid = c.relnamespace WHERE c.oid = {oid} AND (p.schemaname, p.tablename) = (n.nspname, c.relname)
  UNION ALL SELECT 'column ' || attname || ' is an identity or generated column' FROM pg_attribute
    WHERE attrelid = {oid} AND attnum > 0 AND (attidentity <> '' OR attgenerated <> '')
  UNION ALL SELECT 'it owns the sequence ' || objid::regclass FROM pg_depend
    WHERE refclassid = 'pg_class'::regclass AND refobjid = {oid} AND classid = 'pg_class'::regclass AND deptype = 'a'
      AND (SELECT relkind FROM pg_class WHERE oid = objid) = 'S'
  UNION ALL SELECT DISTINCT coalesce(
      (SELECT CASE v.relkind WHEN 'm' THEN 'materialized view ' WHEN 'v' THEN 'view ' ELSE 'table ' END || v.oid::regclass
       FROM pg_rewrite r JOIN pg_class v ON v.oid = r.ev_class WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid),
      pg_describe_object(d.classid, d.objid, d.objsubid)) || ' depends on it'
    FROM pg_class c JOIN pg_type t ON t.oid = c.reltype JOIN pg_depend d ON d.deptype = 'n' AND (
      d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
      OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray))
    WHERE c.oid = {oid} AND NOT (d.classid = 'pg_constraint'::regclass
      AND EXISTS (SELECT 1 FROM pg_constraint o WHERE o.oid = d.objid AND o.conrelid = {oid}))
  UNION ALL SELECT 'it is of a type' FROM pg_class WHERE oid = {oid} AND reloftype <> 0
  UNION ALL SELECT 'it is in a tablespace' FROM pg_class WHERE oid = {oid} AND reltablespace <> 0
  UNION ALL SELECT 'it has a replica identity' FROM pg_class WHERE oid = {oid} AND relreplident <> 'd'
  UNION ALL SELECT 'it has a security label' FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = {oid}
  UNION ALL SELECT 'it belongs to an extension' FROM pg_depend
    WHERE classid = 'pg_class'::regclass AND objid = {oid} AND deptype = 'e'
  UNION ALL SELECT 'its index ' || indexrelid::regclass || ' is broken or orders the table' FROM pg_index
    WHERE indrelid = {oid} AND (indisclustered OR NOT indisvalid OR indisreplident)
  UNION ALL SELECT 'it belongs to ' || pg_get_userbyid(relowner) FROM pg_class
    WHERE oid = {oid} AND NOT pg_has_role(relowner, 'USAGE')
  UNION ALL SELECT 'a user other than its owner granted rights on it' FROM pg_class c, aclexplode(c.relacl) a
    WHERE c.oid = {oid} AND a.grantor <> c.relowner
  UNION ALL SELECT 'its owner has not all rights on it' FROM pg_class c
    WHERE c.oid = {oid} AND c.relacl IS NOT NULL
      AND (SELECT count(*) FROM aclexplode(c.relacl) a WHERE a.grantee = c.relowner)
        < (SELECT count(*) FROM aclexplode(acldefault('r', c.relowner)) d)
  UNION ALL SELECT 'column ' || a.attname || ' has rights that its owner did not grant' FROM pg_attribute a, pg_class c,
    aclexplode(a.attacl) x WHERE c.oid = {oid} AND a.attrelid = c.oid AND x.grantor <> c.relowner
) AS found (what)
"""

_INDEXES = """
SELECT x.relname AS name, pg_get_indexdef(i.indexrelid) AS definition,
  format('CREATE %sINDEX %I ON %I.%I USING ', CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END, x.relname, n.nspname, c.relname)
    AS prefix,
  i.indisunique AS is_unique, quote_ident(k.conname) AS constraint_name,
  CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' ELSE 'UNIQUE' END AS kind,
  CASE WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END || CASE WHEN k.condeferred THEN ' INITIALLY DEFERRED' ELSE '' END
    AS deferral,
  obj_description(i.indexrelid, 'pg_class') AS comment, obj_description(k.oid, 'pg_constraint') AS constraint_comment
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u') AND k.conrelid = i.indrelid
WHERE i.indrelid = {oid} ORDER BY x.relname
"""

_STATISTICS = """
SELECT s.stxname AS name, quote_ident(n.nspname) AS schema, pg_get_statisticsobjdef(s.oid) AS definition,
  format('CREATE STATISTICS %I.%I', n.nspname, s.stxname) AS prefix, ' FROM ' || c.oid::regclass AS suffix,
  coalesce(s.stxstattarget, -1) AS target, obj_description(s.oid, 'pg_statistic_ext') AS comment
FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace
JOIN pg_class c ON c.oid = s.stxrelid
WHERE s.stxrelid = {oid} ORDER BY s.stxname
"""

_SETTINGS = """
WITH kept AS (
  SELECT a.* FROM pg_attribute a JOIN pg_attribute s ON s.attrelid = {stage} AND s.attname = a.attname
  WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND NOT s.attisdropped
)
SELECT statement FROM (
  SELECT 1, conname, format('ALTER TABLE {new} ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE conrelid = {oid} AND contype = 'c'
  UNION ALL SELECT 2, conname, format('COMMENT ON CONSTRAINT %I ON {new} IS %L', conname, obj_description(oid, 'pg_constraint'))
    FROM pg_constraint WHERE conrelid = {oid} AND contype = 'c' AND obj_description(oid, 'pg_constraint') IS NOT NULL
  UNION ALL SELECT 3, attname, format('ALTER TABLE {new} ALTER %I SET DEFAULT %s', attname, pg_get_expr(d.adbin, d.adrelid))
    FROM kept JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum
  UNION ALL SELECT 4, attname, format('ALTER TABLE {new} ALTER %I SET STATISTICS %s', attname, attstattarget)
    FROM kept WHERE attstattarget >= 0
  UNION ALL SELECT 5, attname, format('ALTER TABLE {new} ALTER %I SET (%s)', attname,
      (SELECT string_agg(format('%s = %L', option_name, option_value), ', ') FROM pg_options_to_table(attoptions)))
    FROM kept WHERE attoptions IS NOT NULL
  UNION ALL SELECT 6, attname, format('ALTER TABLE {new} ALTER %I SET STORAGE %s', attname, CASE attstorage
      WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
    FROM kept JOIN pg_type t ON t.oid = atttypid WHERE attstorage <> t.typstorage
  UNION ALL SELECT 7, attname, format('ALTER TABLE {new} ALTER %I SET COMPRESSION %s', attname, CASE attcompression
      WHEN 'l' THEN 'lz4' ELSE 'pglz' END)
    FROM kept WHERE attcompression <> ''
  UNION ALL SELECT 8, attname, format('COMMENT ON COLUMN {new}.%I IS %L', attname, col_description(attrelid, attnum))
    FROM kept WHERE col_description(attrelid, attnum) IS NOT NULL
  UNION ALL SELECT 9, option_name, format('ALTER TABLE {new} SET (%s = %L)', option_name, option_value)
    FROM pg_class, pg_options_to_table(reloptions) WHERE oid = {oid}
  UNION ALL SELECT 10, option_name, format('ALTER TABLE {new} SET (toast.%s = %L)', option_name, option_value)
    FROM pg_class t, pg_options_to_table(t.reloptions) WHERE t.oid = (SELECT reltoastrelid FROM pg_class WHERE oid = {oid})
  UNION ALL SELECT 11, '', format('COMMENT ON TABLE {new} IS %L', obj_description({oid}, 'pg_class'))
    WHERE obj_description({oid}, 'pg_class') IS NOT NULL
  UNION ALL SELECT 12, '', format('ALTER TABLE {new} OWNER TO %I', pg_get_userbyid(relowner))
    FROM pg_class WHERE oid = {oid}
  UNION ALL SELECT 14, a.privilege_type, format('GRANT %s ON {new} TO %s%s', a.privilege_type,
      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
      CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = {oid} AND a.grantee <> c.relowner
  UNION ALL SELECT 15, a.privilege_type, format('GRANT %s (%I) ON {new} TO %s%s', a.privilege_type, t.attname,
      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
      CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM kept t, aclexplode(t.attacl) a
) AS made (step, name, statement) ORDER BY step, name, statement
"""

_DEFAULT_GRANTS = """
SELECT DISTINCT format('REVOKE ALL ON {new} FROM %s',
  CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END) AS statement
FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = {stage} AND a.grantee <> c.relowner
"""


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of a table: statements that reproduce it on the stage table before and after the swap.

    ``fitting`` are statements that remove differences of the stage table first; they are not compared.
    """

    obstacles: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    fitting: tuple[str, ...] = field(default=(), compare=False)


def structure(database: OpenDatabase, old: DefinedTable, stage: DefinedTable) -> Structure:
    """Return the statements that the stage table needs before it can replace a table."""
    filled = {"oid": str(old.oid), "stage": str(stage.oid), "new": _formatted(stage.name.quoted)}
    obstacles = [row.what for row in database.rows(_filled(_OBSTACLES, filled))]
    fitting = [row.statement for row in database.rows(_filled(_DEFAULT_GRANTS, filled))]
    fitting += _nullability(old, stage)
    before: list[str] = []
    after: list[str] = []
    for number, index in enumerate(database.rows(_filled(_INDEXES, filled))):
        temporary = f"__dt_{_digest(stage.name)}_{number}"
        if not index.definition.startswith(index.prefix):
            obstacles.append(f"its index {index.name} cannot be made again")
            continue
        unique = "UNIQUE " if index.is_unique else ""
        body = index.definition.removeprefix(index.prefix)
        before.append(f"CREATE {unique}INDEX {quote(temporary)} ON {stage.name.quoted} USING {body}")
        after += _index_named(old.name, temporary, index)
    for number, statistics in enumerate(database.rows(_filled(_STATISTICS, filled))):
        temporary = f"{statistics.schema}.{quote(f'__dt_{_digest(stage.name)}_{number}')}"
        if not (statistics.definition.startswith(statistics.prefix) and statistics.definition.endswith(statistics.suffix)):
            obstacles.append(f"its statistics {statistics.name} cannot be made again")
            continue
        body = statistics.definition.removeprefix(statistics.prefix).removesuffix(statistics.suffix)
        before.append(f"CREATE STATISTICS {temporary}{body} FROM {stage.name.quoted}")
        after += _statistics_named(temporary, statistics)
    before += [row.statement for row in database.rows(_filled(_SETTINGS, filled))]
    return Structure(tuple(obstacles), tuple(before), tuple(after), tuple(fitting))


def _formatted(name: str) -> str:
    return name.replace("%", "%%").replace("'", "''")


def _filled(query: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        query = query.replace(f"{{{key}}}", value)
    return query


def _digest(stage: TableName) -> str:
    return hashlib.sha256(str(stage).encode()).hexdigest()[:16]


def other_types(old: DefinedTable, stage: DefinedTable) -> list[str]:
    """Describe the columns whose types would change if the stage replaced the table."""
    made = {column.name: column for column in stage.columns}
    return [
        f"its column {column.name} is {column.type}, and Spark writes {made[column.name].type}"
        for column in old.columns
        if column.name in made and (column.type, column.collation) != (made[column.name].type, made[column.name].collation)
    ]


def _nullability(old: DefinedTable, stage: DefinedTable) -> list[str]:
    required = {column.name for column in old.columns if column.required}
    return [
        f"ALTER TABLE {stage.name.quoted} ALTER {quote(column.name)} {'SET' if column.name in required else 'DROP'} NOT NULL"
        for column in stage.columns
        if column.required != (column.name in required)
    ]


def _index_named(table: TableName, temporary: str, index: Any) -> list[str]:
    """Return the statements that give an index its final name, once the old index is dropped."""
    name, constraint = index.name, index.constraint_name
    comment, constraint_comment = index.comment, index.constraint_comment
    if constraint is None:
        made = [f"ALTER INDEX {quote(table.schema, temporary)} RENAME TO {quote(name)}"]
    else:
        using = f"{index.kind} USING INDEX {quote(temporary)}{index.deferral}"
        made = [f"ALTER TABLE {table.quoted} ADD CONSTRAINT {constraint} {using}"]
    if comment is not None:
        made.append(f"COMMENT ON INDEX {quote(table.schema, name)} IS {literal(comment)}")
    if constraint_comment is not None:
        made.append(f"COMMENT ON CONSTRAINT {constraint} ON {table.quoted} IS {literal(constraint_comment)}")
    return made


def _statistics_named(temporary: str, statistics: Any) -> list[str]:
    name, schema, comment = statistics.name, statistics.schema, statistics.comment
    made = [f"ALTER STATISTICS {temporary} RENAME TO {quote(name)}"]
    if statistics.target >= 0:
        made.append(f"ALTER STATISTICS {schema}.{quote(name)} SET STATISTICS {statistics.target}")
    if comment is not None:
        made.append(f"COMMENT ON STATISTICS {schema}.{quote(name)} IS {literal(comment)}")
    return made


log = logging.getLogger(__name__)

_PATIENCE = 2.0
"""Seconds to wait for a swap while other sessions read the table; DELETE and INSERT does not block readers."""

_NOT_CARRIED = ("0A", "2B", "42")
"""SQLSTATE classes of failed structure statements: not supported, dependent objects exist, no privilege or column."""

_VIOLATIONS = "23"
"""SQLSTATE class of constraint violations."""


_REFERRING = """
SELECT conrelid::regclass::text AS referring, conname AS name, confdeltype::text AS action FROM pg_constraint
WHERE contype = 'f' AND confrelid = %(oid)s ORDER BY 1, 2
"""


class _StaysError(Exception):
    """The table cannot be swapped; its rows have to be deleted and inserted."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """A stage whose rows replace the planned rows of a table.

    ``rows`` is their number, and ``horizon`` a point at which the stage was complete. ``patience`` is the lock timeout in
    seconds.
    """

    database: OpenDatabase
    stage: DefinedTable
    rows: int
    horizon: Horizon
    patience: float

    def create(self, name: TableName) -> None:
        """Create the table from the stage."""
        new = DefinedTable(name, self.stage.oid, None, self.stage.columns)
        if self.horizon.older_snapshots(self.database):
            # A renamed stage would look incomplete to older snapshots; a new table looks empty to them.
            self.database.run(f"CREATE TABLE {new.name.quoted} (LIKE {self.stage.name.quoted})")
            self.database.run(self._insertion(new))
            self._drop_stage()
            return
        self.database.run(f"ANALYZE {self.stage.name.quoted}")
        self.database.run(f"ALTER TABLE {self.stage.name.quoted} RENAME TO {quote(new.name.table)}")

    def replace(
        self, target: DefinedTable, partitions: PartitionSet, columns: Sequence[Column], *, is_rebuild: bool = False
    ) -> None:
        """Replace rows of an existing table."""
        if not (partitions.is_whole and self.take_place(target, is_rebuild=is_rebuild)):
            self.delete_and_insert(target, partitions, [column for column in columns if column.name not in target.types])

    def take_place(self, old: DefinedTable, *, is_rebuild: bool) -> bool:
        """Swap the stage with a table, preserving the structure of the table.

        :param is_rebuild: whether columns change, so that a swap is the only way.
        :return: False if the table cannot be swapped; it is unchanged.
        :raises SchemaEvolutionError: if it cannot be swapped and columns change.
        :raises PostgresError: if it is locked by another session and columns change.
        """
        found = structure(self.database, old, self.stage)
        obstacles = (*found.obstacles, *(() if is_rebuild else other_types(old, self.stage)))
        try:
            if obstacles:
                raise _StaysError(f"{'; '.join(obstacles[:5])}")
            with self.database.savepoint():
                self._swap(old, found, self.patience if is_rebuild else min(_PATIENCE, self.patience))
        except _StaysError as why:
            if is_rebuild:
                raise SchemaEvolutionError(
                    f"{old.name} cannot get other columns in one step: {why}. Remove that, or give the table another name."
                ) from None
            log.info("%s keeps its place, its rows are deleted and inserted: %s.", old.name, why)
            return False
        except PostgresError as error:
            raise violation(old, error) from error
        return True

    def _swap(self, old: DefinedTable, found: Structure, patience: float) -> None:
        try:
            for statement in (*found.fitting, *found.before):
                self.database.run(statement)
            self.database.run(f"ANALYZE {self.stage.name.quoted}")  # without statistics, queries are slow
            self._lock(old, patience)
            if structure(self.database, old, self.stage) != found or find(self.database, old.name) != old:
                raise _StaysError("it was altered just now")
            self.database.run(f"DROP TABLE {old.name.quoted}")
            self.database.run(f"ALTER TABLE {self.stage.name.quoted} RENAME TO {quote(old.name.table)}")
            for statement in found.after:
                self.database.run(statement)
        except PostgresError as error:
            if (error.sqlstate or "")[:2] in _NOT_CARRIED:
                raise _StaysError(" ".join((error.said, error.detail)).strip()) from error
            raise

    def _lock(self, old: DefinedTable, patience: float) -> None:
        """Lock the table while no session holds a snapshot older than the stage."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.database.savepoint():
                    lock_for_itself(self.database, old.name, deadline - time.monotonic())
                    if older := self.horizon.older_snapshots(self.database):
                        raise _StaysError(f"a transaction is older than its new rows: {', '.join(older[:3])}")
            except _StaysError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
            except PostgresError as error:
                if error.sqlstate == LOCK_NOT_AVAILABLE and patience < self.patience:
                    raise _StaysError("others use it") from error
                raise
            else:
                return

    def delete_and_insert(self, target: DefinedTable, partitions: PartitionSet, new: Sequence[Column]) -> None:
        """Delete the rows of the given partitions and insert those of the stage, without blocking readers.

        :param new: columns to add to the table.
        """
        self.database.run(f"SET LOCAL lock_timeout = {int(self.patience * 1000)}")
        # Block other writers, whose rows would otherwise remain beside those of the query.
        self.database.run(f"LOCK TABLE {target.name.quoted} IN SHARE ROW EXCLUSIVE MODE")
        if find(self.database, target.name) != target:
            raise CommitRejectedError(f"{target.name} was altered just now; try again.")
        check_conversions(self.database, self.stage, target)
        is_referred_to = self._check_references(target)
        if new:
            lock_for_itself(self.database, target.name, self.patience)
            for column in new:
                added = f"ADD COLUMN {quote(column.name)} {self.stage.types[column.name]}"
                self.database.run(f"ALTER TABLE {target.name.quoted} {added}")
        condition = "true" if partitions.is_whole else target.condition(partitions)
        # Inheriting tables belong to others; only partitions are part of the table.
        deletion = f"DELETE FROM {'' if target.is_partitioned else 'ONLY '}{target.name.quoted} WHERE {condition}"
        try:
            if is_referred_to:  # in one statement, so that foreign keys to reinserted rows hold at its end
                gone = f"WITH gone AS ({deletion} RETURNING 1)"
                self.database.run(f"{gone} {self._insertion(target)} WHERE (SELECT count(*) FROM gone) >= 0")
            else:
                self.database.run(deletion)
                self.database.run(self._insertion(target))
        except PostgresError as error:
            raise violation(target, error) from error
        (held,) = self.database.rows(f"SELECT count(*) AS rows FROM {target.name.quoted} WHERE {condition}")
        if held.rows != self.rows:
            raise StageRejectedError(
                f"{target.name} has {held.rows} rows where the query returned {self.rows}: a trigger or a rule of it, or a table "
                "that inherits from it, changes what is written; nothing was published."
            )
        try:
            check_inserted(self.database, self.stage, target, condition)
        except PostgresError as error:
            raise violation(target, error) from error
        self._drop_stage()

    def _check_references(self, target: DefinedTable) -> bool:
        """Check that deleting rows does not cascade to other tables."""
        keys = self.database.rows(_REFERRING, {"oid": target.oid})
        for key in keys:
            if key.action in ("c", "n", "d"):
                raise StageRejectedError(
                    f"{key.referring} refers to {target.name} by the foreign key {key.name} with an action on DELETE, so that "
                    "replacing rows would change its rows, too; make the foreign key one without, or drop it."
                )
        return bool(keys)

    def _insertion(self, target: DefinedTable) -> str:
        names = ", ".join(map(quote, self.stage.types))
        into = f"INSERT INTO {target.name.quoted} ({names}) OVERRIDING SYSTEM VALUE"
        return f"{into} SELECT {names} FROM {self.stage.name.quoted}"

    def _drop_stage(self) -> None:
        self.database.run(f"DROP TABLE {self.stage.name.quoted}")


def update_comments(database: OpenDatabase, table: DefinedTable, comment: str | None, columns: Sequence[Column]) -> None:
    """Write the comments of a table and its columns where they differ."""
    if comment is not None and comment != table.comment:
        database.run(f"COMMENT ON TABLE {table.name.quoted} IS {literal(comment)}")
    known = {column.name: column.comment for column in table.columns}
    for column in columns:
        if (column.comment or None) != known.get(column.name):
            text = literal(column.comment) if column.comment else "NULL"
            database.run(f"COMMENT ON COLUMN {table.name.quoted}.{quote(column.name)} IS {text}")


def violation(table: DefinedTable, error: PostgresError) -> Exception:
    """Translate a data error of a table to :class:`StageRejectedError`; return any other error unchanged."""
    if (error.sqlstate or "")[:2] in (_VIOLATIONS, "22", "42"):
        said = " ".join((error.said, error.detail if error.detail not in error.said else "")).strip()
        return StageRejectedError(f"{table.name} does not take the rows of the query ({said}); nothing was published.")
    return error
