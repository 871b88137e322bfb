"""What a table has besides its rows is still there when other rows have taken their place, one way or the other."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.clients.postgres.server import PostgresServer
from airflow_dynamic_tables.clients.postgres.tables import tie_commits
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.exceptions import SchemaEvolutionError, StageRejectedError
from tests.support.benches.jdbc import JdbcBench, table_of, write_rows
from tests.support.benches.staging import COLUMNS

pytestmark = pytest.mark.postgres


def run(bench: JdbcBench, statements: str) -> None:
    table = table_of(bench)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        for statement in filter(None, map(str.strip, statements.split(";"))):
            connection.execute(statement.replace("TABLE_", table.quoted).replace("SCHEMA_", table.schema).encode())


def ask(bench: JdbcBench, query: str) -> list[Any]:
    table = table_of(bench)
    with psycopg.connect(bench.url) as connection:
        return [row[0] for row in connection.execute(query.replace("TABLE_", f"'{table}'::regclass").encode())]


def oid(bench: JdbcBench) -> int:
    return int(ask(bench, "SELECT TABLE_::oid::bigint")[0])


ABOUT = {
    "indexes": "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = TABLE_ ORDER BY 1",
    "constraints": "SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = TABLE_ ORDER BY 1",
    "comments": "SELECT description FROM pg_description WHERE objoid = TABLE_ OR objoid IN (SELECT oid FROM pg_constraint WHERE "
    "conrelid = TABLE_) OR objoid IN (SELECT indexrelid FROM pg_index WHERE indrelid = TABLE_) ORDER BY 1",
    "rights": "SELECT a.grantee::regrole || ' ' || privilege_type || is_grantable FROM pg_class, aclexplode(relacl) a WHERE "
    "oid = TABLE_ AND a.grantee <> relowner ORDER BY 1",
    "rights on columns": "SELECT attname || attacl::text FROM pg_attribute WHERE attrelid = TABLE_ AND attacl IS NOT NULL",
    "defaults": "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = TABLE_",
    "settings": "SELECT unnest(reloptions) FROM pg_class WHERE oid = TABLE_ ORDER BY 1",
    "columns": "SELECT attname || attstattarget || attnotnull || coalesce(attoptions::text, '') || attstorage::text FROM "
    "pg_attribute WHERE attrelid = TABLE_ AND attnum > 0 ORDER BY attnum",
    "statistics": "SELECT pg_get_statisticsobjdef(oid) || stxstattarget FROM pg_statistic_ext WHERE stxrelid = TABLE_",
    "owner": "SELECT relowner::regrole::text FROM pg_class WHERE oid = TABLE_",
}


@pytest.fixture
def roles(bench: JdbcBench) -> tuple[str, str]:
    """An owner and a reader."""
    names = (f"owner_{uuid4().hex[:8]}", f"reader_{uuid4().hex[:8]}")
    run(bench, "; ".join(f"CREATE ROLE {name}" for name in names) + f"; GRANT CREATE, USAGE ON SCHEMA SCHEMA_ TO {names[0]}")
    return names


def test_a_table_keeps_all_it_has_when_others_take_the_place_of_its_rows(bench: JdbcBench, roles: tuple[str, str]) -> None:
    bench.refresh({"1": [1], "2": [2]})
    owner, reader = roles
    run(
        bench,
        f"""
        ALTER TABLE TABLE_ ADD CONSTRAINT "the key" PRIMARY KEY (n) INCLUDE (ds);
        ALTER TABLE TABLE_ ADD CONSTRAINT positive CHECK (n > 0) NO INHERIT;
        ALTER TABLE TABLE_ ADD CONSTRAINT "both" UNIQUE (ds, n) DEFERRABLE INITIALLY DEFERRED;
        CREATE INDEX "by day USING btree" ON TABLE_ (ds DESC) WHERE ds <> '''';
        CREATE INDEX lower_day ON TABLE_ (lower(ds)) WITH (fillfactor = 71);
        COMMENT ON INDEX SCHEMA_.lower_day IS 'lower';
        COMMENT ON CONSTRAINT positive ON TABLE_ IS 'more than nothing';
        COMMENT ON CONSTRAINT "the key" ON TABLE_ IS 'it''s the key';
        COMMENT ON COLUMN TABLE_.n IS 'how many %';
        ALTER TABLE TABLE_ ALTER n SET STATISTICS 17;
        ALTER TABLE TABLE_ ALTER n SET (n_distinct = 5);
        ALTER TABLE TABLE_ ALTER n SET DEFAULT 3;
        ALTER TABLE TABLE_ ALTER ds SET STORAGE EXTERNAL;
        ALTER TABLE TABLE_ SET (fillfactor = 70, autovacuum_enabled = false);
        CREATE STATISTICS SCHEMA_.together (ndistinct) ON ds, n FROM TABLE_;
        ALTER STATISTICS SCHEMA_.together SET STATISTICS 12;
        GRANT SELECT ON TABLE_ TO {reader} WITH GRANT OPTION;
        GRANT UPDATE (n) ON TABLE_ TO {reader};
        ALTER TABLE TABLE_ OWNER TO {owner}
        """,
    )
    before, had = oid(bench), {what: ask(bench, query) for what, query in ABOUT.items()}
    assert all(had.values())
    bench.refresh({"3": [30]})
    assert bench.rows() == {"3": [30]}
    assert oid(bench) != before, "it took the place of the other one"
    assert {what: ask(bench, query) for what, query in ABOUT.items()} == had
    with pytest.raises(StageRejectedError, match=r"does not take the rows of the query .*\"positive\".*; nothing was published"):
        bench.refresh({"4": [-4]})
    with pytest.raises(StageRejectedError, match=r"does not take the rows.*Key \(n\)=\(5\) is duplicated"):
        bench.refresh({"4": [5], "5": [5]})
    assert bench.rows() == {"3": [30]}
    assert {what: ask(bench, query) for what, query in ABOUT.items()} == had


def test_statistics_of_a_table_in_the_search_path_are_carried_over(bench: JdbcBench) -> None:
    bench.path = ObjectPath(bench.path.database, f"revenue_{uuid4().hex[:8]}")
    bench.refresh({"1": [1], "2": [2]})
    run(bench, "CREATE STATISTICS SCHEMA_.together (ndistinct) ON ds, n FROM TABLE_")
    before = oid(bench)
    bench.refresh({"3": [30]})
    assert oid(bench) != before, "it took the place of the other one"
    assert len(ask(bench, ABOUT["statistics"])) == 1
    run(bench, "DROP TABLE TABLE_")


STAYS = {
    "view": ("CREATE VIEW SCHEMA_.v AS SELECT n FROM TABLE_", ".v depends on it"),
    "materialized view": ("CREATE MATERIALIZED VIEW SCHEMA_.m AS SELECT n FROM TABLE_", ".m depends on it"),
    "foreign key": (
        (
            "ALTER TABLE TABLE_ ADD UNIQUE (n); CREATE TABLE SCHEMA_.child (n bigint REFERENCES TABLE_ (n)); "
            "INSERT INTO SCHEMA_.child VALUES (1)"
        ),
        "child refers to it",
    ),
    "function": ("CREATE FUNCTION SCHEMA_.f(TABLE_) RETURNS int LANGUAGE sql AS 'SELECT 1'", "depends on it"),
    "trigger": (
        (
            "CREATE FUNCTION SCHEMA_.g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW\\; END'; "
            "CREATE TRIGGER t BEFORE INSERT ON TABLE_ FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()"
        ),
        "the trigger t",
    ),
    "child": ("CREATE TABLE SCHEMA_.heir () INHERITS (TABLE_)", "inherits"),
    "policy": ("CREATE POLICY p ON TABLE_ USING (n > 0)", "the policy p"),
    "publication": ("ALTER TABLE TABLE_ ADD PRIMARY KEY (n); CREATE PUBLICATION SCHEMA_ FOR TABLE TABLE_", "publication"),
    "sequence": ("CREATE SEQUENCE SCHEMA_.s OWNED BY TABLE_.n", "owns the sequence"),
    "identity": ("ALTER TABLE TABLE_ ALTER n SET NOT NULL, ALTER n ADD GENERATED ALWAYS AS IDENTITY", "identity"),
    "type": ("ALTER TABLE TABLE_ ALTER n TYPE numeric(20)", "column n is numeric"),
    "exclusion": ("ALTER TABLE TABLE_ ADD EXCLUDE USING btree (n WITH =)", "exclusion constraint"),
    "replica identity": ("ALTER TABLE TABLE_ REPLICA IDENTITY FULL", "replica identity"),
}


@pytest.mark.sampled
@pytest.mark.parametrize(("made", "why"), STAYS.values(), ids=STAYS)
def test_a_table_stays_for_what_cannot_be_carried_over(
    bench: JdbcBench, caplog: pytest.LogCaptureFixture, made: str, why: str
) -> None:
    bench.refresh({"1": [1], "2": [2]})
    for statement in made.replace("\\;", "\x00").split("; "):
        run_one(bench, statement.replace("\x00", ";"))
    before = oid(bench)
    with caplog.at_level(logging.INFO):
        bench.refresh({"1": [1], "3": [3]})
    assert bench.rows() == {"1": [1], "3": [3]}
    assert oid(bench) == before
    assert "its rows are deleted and inserted: " in caplog.text
    assert why in caplog.text


def run_one(bench: JdbcBench, statement: str) -> None:
    table = table_of(bench)
    with psycopg.connect(bench.url, autocommit=True) as connection:
        connection.execute(statement.replace("TABLE_", table.quoted).replace("SCHEMA_", table.schema).encode())


def test_rows_that_others_refer_to_may_come_again_and_not_go(bench: JdbcBench) -> None:
    bench.refresh({"1": [1], "2": [2]})
    run(bench, "ALTER TABLE TABLE_ ADD UNIQUE (n); CREATE TABLE SCHEMA_.child (n bigint REFERENCES TABLE_ (n))")
    run(bench, "INSERT INTO SCHEMA_.child VALUES (1)")
    bench.refresh({"1": [1, 10]}, "1")
    assert bench.rows() == {"1": [1, 10], "2": [2]}
    with pytest.raises(StageRejectedError, match=r"does not take the rows.*Key \(n\)=\(1\) is still referenced"):
        bench.refresh({"1": [10]}, "1")
    assert bench.rows() == {"1": [1, 10], "2": [2]}


def test_a_foreign_key_that_would_change_rows_of_others_is_refused(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    run(bench, "ALTER TABLE TABLE_ ADD UNIQUE (n); CREATE TABLE SCHEMA_.child (n bigint REFERENCES TABLE_ (n) ON DELETE CASCADE)")
    run(bench, "INSERT INTO SCHEMA_.child VALUES (1)")
    with pytest.raises(StageRejectedError, match=r"child refers to .* by the foreign key child_n_fkey with an action on DELETE"):
        bench.refresh({"1": [1]})
    assert ask(bench, f"SELECT n FROM {table_of(bench).schema}.child") == [1]


def test_other_columns_are_refused_while_a_view_needs_the_old_ones(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    run(bench, "CREATE VIEW SCHEMA_.v AS SELECT n FROM TABLE_")
    with pytest.raises(
        SchemaEvolutionError, match=r"cannot get other columns in one step: view .*\.v depends on it\. Remove that"
    ):
        bench.rebuild({"1": [2]}, COLUMNS[0], Column("m", "bigint"))
    assert bench.rows() == {"1": [1]}


def test_other_columns_are_refused_while_an_index_needs_the_old_ones(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    run(bench, "CREATE INDEX by_n ON TABLE_ (n)")
    with pytest.raises(SchemaEvolutionError, match='in one step: column "n" does not exist'):
        bench.rebuild({"1": [2]}, COLUMNS[0], Column("m", "bigint"))
    assert bench.rows() == {"1": [1]}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["smallint", "varchar(2)", "real"])
def test_a_column_that_somebody_made_smaller_never_rounds_a_value(bench: JdbcBench, kind: str) -> None:
    bench.partition_keys = ()
    columns = (Column("x", "double"),)
    staged = bench.stage("t1")
    bench.commit(staged, write_rows(bench.url, staged, columns, [[1]]))
    run(bench, f"ALTER TABLE TABLE_ ALTER x TYPE {kind}")
    staged = bench.stage("t2")
    bench.commit(staged, write_rows(bench.url, staged, columns, [[2]]))
    staged = bench.stage("t3")
    with pytest.raises(
        StageRejectedError, match=r"Column x of .* which cannot hold 1.23456789 of type double precision; alter the"
    ):
        bench.commit(staged, write_rows(bench.url, staged, columns, [[1.23456789]]))


def test_what_a_trigger_makes_of_rows_is_noticed(bench: JdbcBench) -> None:
    bench.refresh({"1": [1]})
    run_one(bench, "CREATE FUNCTION SCHEMA_.g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    run_one(bench, "CREATE TRIGGER t BEFORE INSERT ON TABLE_ FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()")
    with pytest.raises(StageRejectedError, match="has 0 rows where the query returned 2: a trigger"):
        bench.refresh({"1": [1, 2]})
    assert bench.rows() == {"1": [1]}


CHANGING = {
    "before each row": (
        "BEGIN NEW.n := NEW.n + 100; RETURN NEW; END",
        "CREATE TRIGGER t BEFORE INSERT ON TABLE_ FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()",
    ),
    "before each row of a partition": (
        "BEGIN NEW.n := NEW.n + 100; RETURN NEW; END",
        "CREATE TRIGGER t BEFORE INSERT ON SCHEMA_.part FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()",
    ),
    "after the statement": (
        "BEGIN UPDATE TABLE_ SET n = n + 100; RETURN NULL; END",
        "CREATE TRIGGER t AFTER INSERT ON TABLE_ FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA_.g()",
    ),
    "at the end of the transaction": (
        "BEGIN UPDATE TABLE_ SET n = n + 100 WHERE n < 100; RETURN NULL; END",
        "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON TABLE_ INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()",
    ),
    "a rule": (
        "BEGIN RETURN NULL; END",
        "CREATE RULE t AS ON INSERT TO TABLE_ DO ALSO UPDATE TABLE_ SET n = n + 100",
    ),
}
"""What makes other values of the rows of a commit: the body of a function, and what calls it."""


@pytest.mark.sampled
@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("days", [("1",), ()], ids=["a partition", "the complete table"])
def test_values_that_a_trigger_or_a_rule_changes_are_refused(bench: JdbcBench, kind: str, days: tuple[str, ...]) -> None:
    bench.refresh({"1": [1]})
    if "partition" in kind:
        make_partitioned(bench)
    body, called = CHANGING[kind]
    run_one(bench, f"CREATE FUNCTION SCHEMA_.g() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    run_one(bench, called)
    with pytest.raises(StageRejectedError, match=r"does not hold the rows that the query returned.*has the .* t\b"):
        bench.refresh({"1": [2]}, *days)
    assert bench.rows() == {"1": [1]}


@pytest.mark.parametrize("days", [("1",), ()], ids=["a partition", "the complete table"])
def test_a_trigger_that_changes_no_value_is_in_no_way(bench: JdbcBench, days: tuple[str, ...]) -> None:
    """Also where columns have other types than Spark writes, a row is there twice, or the server fills a column."""
    bench.refresh({"1": [1], "2": [5]})
    run(bench, "ALTER TABLE TABLE_ ALTER n TYPE numeric(9, 2), ALTER ds TYPE varchar(9), ADD id int GENERATED ALWAYS AS IDENTITY")
    run_one(bench, "CREATE FUNCTION SCHEMA_.g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    run_one(bench, "CREATE TRIGGER t BEFORE INSERT ON TABLE_ FOR EACH ROW EXECUTE FUNCTION SCHEMA_.g()")
    bench.refresh({"1": [2, 2, 3]}, *days)
    assert bench.rows() == {"1": [2, 2, 3]} | ({"2": [5]} if days else {})


def make_partitioned(bench: JdbcBench) -> None:
    """Somebody makes the table one with partitions of its own, which is adopted."""
    table = table_of(bench)
    run(
        bench,
        "ALTER TABLE TABLE_ RENAME TO part; CREATE TABLE TABLE_ (ds text, n bigint) PARTITION BY LIST (ds); "
        "ALTER TABLE TABLE_ ATTACH PARTITION SCHEMA_.part DEFAULT",
    )
    with PostgresServer(bench.url, "").transaction(bench.path.database, 5) as opened:
        tie_commits(opened, table)


def test_an_index_that_comes_meanwhile_is_not_lost(bench: JdbcBench) -> None:
    """It is there when the commit looks again, with the table locked, or waits until there is another table."""
    bench.refresh({"1": [1]})
    staged = bench.stage("t2")
    result = bench.write(staged, {"1": [2]})
    bench.commit(staged, result, lambda: run(bench, "CREATE INDEX late ON TABLE_ (n)"))
    assert [index.split()[2] for index in ask(bench, ABOUT["indexes"])] == ["late"]
