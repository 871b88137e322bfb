"""CREATE TABLE AS in PostgreSQL: one transaction makes the table and its entry, and needs no draft."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, CatalogTable, is_one_off
from airflow_dynamic_tables.clients.files import write_text
from airflow_dynamic_tables.clients.postgres.server import OpenDatabase, PostgresServer
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import (
    CommitRejectedError,
    ConfigurationError,
    ConflictError,
    DynamicTableError,
    JobFailedError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
)
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services import catalogs as listing
from airflow_dynamic_tables.services.ctas.planning import decide
from airflow_dynamic_tables.services.ctas.running import Submit, create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.lifecycle.dropping import drop
from airflow_dynamic_tables.services.maintenance.sweeping import sweep
from airflow_dynamic_tables.services.settings import WorkspaceSettings
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.contracts.catalogs.samples import DYNAMIC

pytestmark = pytest.mark.postgres

REPLACE = Purpose.CREATE_OR_REPLACE


@pytest.fixture
def schema(tables_url: str) -> str:
    name = f"Ctas {uuid4().hex[:12]}"  # a name that has to be quoted
    execute(tables_url, f'CREATE SCHEMA "{name}"')
    return name


@pytest.fixture
def table(schema: str) -> TableIdentifier:
    return TableIdentifier("pg", "tables", f'{schema}.Big "numbers"')


@pytest.fixture
def real(schema: str) -> str:
    return f'"{schema}"."Big ""numbers"""'


Opener = Callable[..., Workspace]


@pytest.fixture
def installation(tables_url: str, tmp_path: Path, empty_state: Path) -> Iterator[Opener]:
    """Opens one more installation, with a ledger of its own."""
    with ExitStack() as stack:

        def opened(url: str = tables_url) -> Workspace:
            folder = tmp_path / uuid4().hex
            folder.mkdir()
            shutil.copy(empty_state, folder / "state.db")
            params = f"{{url: '{url}', lock-timeout: 0.3}}"
            (folder / "catalogs.yaml").write_text(
                f"catalogs: [{{name: pg, type: jdbc, default-database: tables, connection-params: {params}}}]"
            )
            settings = WorkspaceSettings(f"sqlite:///{folder}/state.db", f"file://{folder}/warehouse", folder / "catalogs.yaml")
            return stack.enter_context(open_workspace(settings))

        yield opened


@pytest.fixture
def workspace(installation: Opener) -> Workspace:
    return installation()


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def wanted(table: TableIdentifier, purpose: Purpose = Purpose.CREATE, select: str = "SELECT 1 AS x") -> WantedTable:
    return WantedTable(table, select, ("pg", "tables"), QueryPlace(Path("query"), select), purpose, "jdbc", comment="Numbers")


def writes(url: str, *numbers: int, meanwhile: Callable[[], object] = lambda: None, column: str = "x") -> Submit:
    """A job that fills the stage, while something else happens."""

    def job(plan: RefreshPlan) -> None:
        assert plan.sink is not None
        values = ", ".join(f"({number})" for number in numbers)
        execute(url, f"CREATE TABLE {plan.sink.table} ({column} bigint)", f"INSERT INTO {plan.sink.table} VALUES {values}")
        meanwhile()
        result = RefreshResult(plan.token, "job", len(numbers), (), (Column(column, "bigint"),))
        write_text(plan.result_location, result.to_json())

    return job


def create(workspace: Workspace, wanted: WantedTable, job: Submit, token: str = "") -> Created:
    token = token or str(uuid4())
    return create_table_as(workspace, Definitions(), wanted, (token, f"owner of {token}"), job)


def numbers(workspace: Workspace, table: TableIdentifier) -> list[int]:
    return sorted(row["x"] for row in sample(workspace, table, 10))


def relations(url: str, schema: str) -> list[str]:
    """What is in a schema besides what tells of versions."""
    found = query(
        url, f"SELECT relname FROM pg_class WHERE relnamespace = '\"{schema}\"'::regnamespace AND relkind IN ('r', 'v')"
    )
    return sorted(str(name) for (name,) in found if not str(name).startswith("_dynamic"))


def entries(url: str, schema: str) -> list[object]:
    return [name for (name,) in query(url, f'SELECT table_name FROM "{schema}"._dynamic_tables')]


def test_a_table_is_made_listed_read_replaced_renamed_and_dropped(
    workspace: Workspace, table: TableIdentifier, tables_url: str, schema: str, real: str
) -> None:
    def nothing_yet() -> None:
        assert not workspace.catalog("pg").table_exists(table.path)
        assert [name for name in workspace.catalog("pg").list_tables("tables") if name.startswith(schema)] == []

    made = create(workspace, wanted(table), writes(tables_url, 1, 2, meanwhile=nothing_yet))
    assert (made.outcome, made.version, made.rows) == (CtasOutcome.CREATED, 1, 2)
    assert numbers(workspace, table) == [1, 2]
    entry = workspace.catalog("pg").get_table(table.path)
    assert isinstance(entry, CatalogTable)
    assert is_one_off(entry)
    assert (entry.comment, entry.format, [column.name for column in entry.columns]) == ("Numbers", "jdbc", ["x"])
    assert str(table) in [one.identifier for one in listing.tables(workspace, "pg.tables") if one.kind == "table"]
    assert table.table not in workspace.catalog("pg").get_dynamic_tables("tables")

    with pytest.raises(TableAlreadyExistsError, match="exists already, a table; replace it, or choose another name"):
        create(workspace, wanted(table), writes(tables_url, 9))
    there = create(workspace, wanted(table, Purpose.CREATE_IF_NOT_EXISTS), lambda _: pytest.fail("Spark was started"))
    assert there == Created(table, CtasOutcome.EXISTS)

    execute(tables_url, f"CREATE INDEX by_x ON {real} (x)", f"GRANT SELECT ON {real} TO PUBLIC")
    plans: list[RefreshPlan] = []

    def job(plan: RefreshPlan) -> None:
        plans.append(plan)
        writes(tables_url, 2, 4)(plan)

    made = create(workspace, wanted(table, REPLACE, f"SELECT 2 * x AS x FROM {table.sql}"), job)
    assert (made.outcome, made.version) == (CtasOutcome.REPLACED, 2)
    assert numbers(workspace, table) == [2, 4]
    assert [source.options["dbtable"] for source in plans[0].sources] == [real]
    acl = query(tables_url, f"SELECT relacl::text LIKE '%=r/%' FROM pg_class WHERE oid = '{real}'::regclass")
    assert (acl, query(tables_url, f"SELECT count(*) FROM pg_index WHERE indrelid = '{real}'::regclass")) == ([(True,)], [(1,)])

    with pytest.raises(
        SchemaEvolutionError, match=r"cannot get other columns in one step: column .x. does not exist\. Remove that"
    ):
        create(workspace, wanted(table, REPLACE, "SELECT 1 AS y"), writes(tables_url, 7, column="y"))
    assert numbers(workspace, table) == [2, 4]
    execute(tables_url, f'DROP INDEX "{schema}".by_x')
    made = create(workspace, wanted(table, REPLACE, "SELECT 1 AS y"), writes(tables_url, 7, column="y"))
    assert made.version == 3
    assert [column.name for column in workspace.catalog("pg").get_table(table.path).columns] == ["y"]
    assert sweep(workspace).failed == ()

    other = TableIdentifier("pg", "tables", f"{schema}.others")
    workspace.catalog("pg").rename_table(table.path, other.table)
    assert is_one_off(workspace.catalog("pg").get_table(other.path))
    assert drop(workspace, other).location is not None
    assert (relations(tables_url, schema), entries(tables_url, schema)) == ([], [])
    assert create(workspace, wanted(table), writes(tables_url, 1)).version == 1


@pytest.mark.parametrize("error", [JobFailedError("DIVIDE_BY_ZERO"), KeyboardInterrupt()])
def test_a_table_whose_job_fails_or_is_cancelled_never_existed(
    workspace: Workspace, table: TableIdentifier, tables_url: str, schema: str, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        create(workspace, wanted(table), writes(tables_url, 1, meanwhile=fail), "t1")
    assert relations(tables_url, schema) == []
    stage = workspace.ledger.get_stage("t1")
    assert stage.state is StageState.ABORTED
    assert create(workspace, wanted(table), writes(tables_url, 1)).outcome is CtasOutcome.CREATED


OCCUPANTS = {
    "a table": ("CREATE TABLE {real} (n int)", "DROP TABLE {real}"),
    "a table (a part of another)": (
        'CREATE TABLE "{schema}".t (n int) PARTITION BY LIST (n); CREATE TABLE {real} PARTITION OF "{schema}".t DEFAULT',
        "DROP TABLE {real}",
    ),
    "a partitioned table": ("CREATE TABLE {real} (n int) PARTITION BY LIST (n)", "DROP TABLE {real}"),
    "a view": ("CREATE VIEW {real} AS SELECT 1 AS n", "DROP VIEW {real}"),
    "a materialized view": ("CREATE MATERIALIZED VIEW {real} AS SELECT 1 AS n", "DROP MATERIALIZED VIEW {real}"),
    "a sequence": ("CREATE SEQUENCE {real}", "DROP SEQUENCE {real}"),
    "an index": ('CREATE TABLE "{schema}".t (n int); CREATE INDEX {name} ON "{schema}".t (n)', "DROP INDEX {real}"),
    "a type": ("CREATE TYPE {real} AS (n int)", "DROP TYPE {real}"),
    "a type (enum)": ("CREATE TYPE {real} AS ENUM ('n')", "DROP TYPE {real}"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", OCCUPANTS)
def test_what_others_made_of_the_name_stays_whenever_it_appears(
    workspace: Workspace, table: TableIdentifier, tables_url: str, schema: str, real: str, kind: str
) -> None:
    make, take_away = (text.format(real=real, schema=schema, name=real.partition(".")[2]) for text in OCCUPANTS[kind])
    is_table = "table" in kind or "view" in kind
    what = kind.partition(" (")[0]
    if is_table:
        message = f"{table.table} is there already, {what} of user postgres; it stays as it is."
    else:
        message = f"{table.table} is {what} of user postgres and no table; drop it, or choose another name."

    def told(purpose: Purpose, job: Submit) -> str:
        if is_table and purpose is Purpose.CREATE_IF_NOT_EXISTS:
            assert create(workspace, wanted(table, purpose), job).outcome is CtasOutcome.EXISTS
            return message
        with pytest.raises(DynamicTableError) as refused:
            create(workspace, wanted(table, purpose), job)
        return str(refused.value)

    late = Purpose.CREATE_IF_NOT_EXISTS if kind == "a view" else Purpose.CREATE
    assert told(late, writes(tables_url, 1, meanwhile=lambda: execute(tables_url, make))) == message
    for purpose in Purpose:
        early = told(purpose, lambda _: pytest.fail("Spark was started"))
        assert early == message or (is_table and early.startswith(f"{table} "))
    execute(tables_url, take_away)  # it was there
    assert create(workspace, wanted(table), writes(tables_url, 1)).outcome is CtasOutcome.CREATED


def test_the_table_that_others_make_in_a_transaction_just_now_wins(
    workspace: Workspace, table: TableIdentifier, tables_url: str, real: str
) -> None:
    with psycopg.connect(tables_url, application_name="psql of bob") as theirs:
        theirs.execute(f"CREATE TABLE {real} (n int)".encode())
        with pytest.raises(CommitRejectedError) as refused:
            create(workspace, wanted(table), writes(tables_url, 1))
        assert f"pid {theirs.info.backend_pid} (user postgres, application psql of bob" in str(refused.value)
        theirs.commit()
    with pytest.raises(TableAlreadyExistsError, match="exists already, a table; choose another name"):
        create(workspace, wanted(table), writes(tables_url, 1))
    assert query(tables_url, f"SELECT count(*) FROM {real}") == [(0,)]


def test_what_was_dropped_in_postgresql_is_not_there_and_what_was_made_anew_is_of_others(
    workspace: Workspace, table: TableIdentifier, tables_url: str, real: str
) -> None:
    create(workspace, wanted(table), writes(tables_url, 1))
    execute(tables_url, f"DROP TABLE {real}")
    assert not workspace.catalog("pg").table_exists(table.path)
    assert create(workspace, wanted(table), writes(tables_url, 2)).version == 1
    assert numbers(workspace, table) == [2]

    execute(tables_url, f"DROP TABLE {real}", f"CREATE TABLE {real} AS SELECT 7 AS x")
    assert not is_one_off(workspace.catalog("pg").get_table(table.path))
    with pytest.raises(TableAlreadyExistsError, match="was not made by CREATE TABLE AS, so its rows are not replaced"):
        create(workspace, wanted(table, REPLACE), lambda _: pytest.fail("Spark was started"))
    with pytest.raises(DynamicTableError):
        drop(workspace, table)
    assert query(tables_url, f"SELECT x FROM {real}") == [(7,)]


@pytest.mark.parametrize("change", ["DROP TABLE {real}", "DROP TABLE {real}; CREATE TABLE {real} AS SELECT 7 AS x"])
def test_a_table_that_is_dropped_while_it_is_replaced_is_not_made_again(
    workspace: Workspace, table: TableIdentifier, tables_url: str, schema: str, real: str, change: str
) -> None:
    create(workspace, wanted(table), writes(tables_url, 1))
    change = change.format(real=real)
    with pytest.raises(CommitRejectedError, match="was dropped or recreated before it was replaced; try again"):
        create(workspace, wanted(table, REPLACE), writes(tables_url, 2, meanwhile=lambda: execute(tables_url, change)))
    assert relations(tables_url, schema) == (['Big "numbers"'] if "CREATE" in change else [])


def test_a_second_creator_is_told_of_the_first_also_from_another_installation(
    installation: Opener, table: TableIdentifier, tables_url: str
) -> None:
    here, there = installation(), installation()

    def both_try() -> None:
        with pytest.raises(ConflictError, match=r"is being created by owner of .* since"):
            create(here, wanted(table), lambda _: pytest.fail("Spark was started"))
        create(there, wanted(table), writes(tables_url, 9), "8c1b6a0e-4a5b-4f0e-9d5c-1f3a2b4c5d6e")

    with pytest.raises(TableAlreadyExistsError) as told:
        create(here, wanted(table), writes(tables_url, 1, meanwhile=both_try))
    assert str(told.value) == (
        f"{table.table} is there already, a table of user postgres, which 8c1b6a0e-4a5b-4f0e-9d5c-1f3a2b4c5d6e made; it stays as "
        "it is."
    )
    assert numbers(here, table) == [9]


def test_a_definition_of_the_name_that_is_registered_meanwhile_stays(
    workspace: Workspace, table: TableIdentifier, tables_url: str, schema: str
) -> None:
    def register() -> None:
        workspace.catalog("pg").create_table(table.path, replace(DYNAMIC, format="jdbc", columns=()))

    with pytest.raises(TableAlreadyExistsError, match="was declared as a dynamic table meanwhile; it stays as it is"):
        create(workspace, wanted(table), writes(tables_url, 1, meanwhile=register))
    assert relations(tables_url, schema) == []
    assert isinstance(workspace.catalog("pg").get_table(table.path), CatalogDynamicTable)


def test_a_definition_takes_the_name_of_a_table_that_somebody_dropped(
    workspace: Workspace, table: TableIdentifier, tables_url: str, real: str
) -> None:
    catalog = workspace.catalog("pg")
    create(workspace, wanted(table), writes(tables_url, 1))
    entry = replace(DYNAMIC, format="jdbc", columns=())
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(table.path, entry)
    execute(tables_url, f"DROP TABLE {real}")
    catalog.create_table(table.path, entry)
    assert catalog.get_table(table.path) == entry


OWN = '"{schema}"."_dynamic_table_commits", "{schema}"."_dynamic_tables"'
NO_RIGHT = (
    f"User {{user}} may not read and write {OWN}, where what is known of tables of this schema is kept; let the owner run: GRANT "
    f'USAGE, CREATE ON SCHEMA "{{schema}}" TO "{{user}}"; GRANT SELECT, INSERT, UPDATE, DELETE ON {OWN} TO "{{user}}".'
)
NO_CREATE = (
    "User {user} may not make tables in schema {schema} of database tables; let its owner run: GRANT USAGE, CREATE ON SCHEMA "
    '"{schema}" TO "{user}".'
)
READS = (
    "Sessions of user {user} in database tables can only read (default_transaction_read_only is on), so {table} cannot be made; "
    "name a server, user and options that can write."
)
READ = 'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {user}'
RIGHTS = {
    "none": ("", NO_RIGHT),
    "to read": (READ + '; GRANT USAGE, CREATE ON SCHEMA "{schema}" TO {user}', NO_RIGHT),
    "to read and no more": (READ + '; GRANT USAGE ON SCHEMA "{schema}" TO {user}', NO_CREATE),
    "in sessions that only read": (
        "ALTER ROLE {user} SUPERUSER; ALTER ROLE {user} SET default_transaction_read_only = on",
        READS,
    ),
}


@pytest.mark.parametrize("case", RIGHTS)
def test_a_user_who_may_not_make_the_table_is_told_before_spark_starts(
    installation: Opener, table: TableIdentifier, tables_url: str, schema: str, case: str
) -> None:
    user = f"u_{uuid4().hex[:8]}"
    before, message = (text.format(user=user, schema=schema, table=table.table) for text in RIGHTS[case])
    create(installation(), wanted(TableIdentifier("pg", "tables", f"{schema}.first")), writes(tables_url, 1))
    execute(tables_url, f"CREATE ROLE {user} LOGIN", before)
    theirs = installation(tables_url.replace("postgres@", f"{user}@"))
    with pytest.raises(ConfigurationError) as refused:
        decide(theirs, Definitions(), wanted(table))
    assert str(refused.value) == message


NAMES = {
    "nowhere.t": "Database tables has no schema nowhere for nowhere.t; make it (CREATE SCHEMA), or choose another.",
    "n" * 64: f"PostgreSQL cuts names off after 63 bytes, and {'n' * 64!r} has 64; choose a shorter one.",
    "pg_toast.t": "Schema pg_toast is PostgreSQL's own, so pg_toast.t cannot be made there; choose another schema.",
    "t__stage_1": "Names such as t__stage_1 are those of this package's own tables; choose another one.",
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_no_table_can_have_are_refused_before_spark_starts(workspace: Workspace, name: str) -> None:
    with pytest.raises(DynamicTableError) as refused:
        decide(workspace, Definitions(), wanted(TableIdentifier("pg", "tables", name)))
    assert str(refused.value) == NAMES[name]


def test_a_database_that_is_missing_is_told_of_before_spark_starts(workspace: Workspace) -> None:
    with pytest.raises(
        ConfigurationError, match="The server has no database nowhere, and none is made here: run CREATE DATABASE"
    ):
        decide(workspace, Definitions(), wanted(TableIdentifier("pg", "nowhere", "t")))


def test_only_databases_that_somebody_named_are_connected_to(
    installation: Opener, table: TableIdentifier, tables_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may not be let into database postgres."""
    workspace = installation(tables_url.removesuffix("/tables"))
    asked: set[str] = set()
    connected = PostgresServer.connected

    def noted(server: PostgresServer, database: str) -> AbstractContextManager[OpenDatabase]:
        asked.add(database)
        return connected(server, database)

    monkeypatch.setattr(PostgresServer, "connected", noted)
    assert decide(workspace, Definitions(), wanted(table)).outcome is CtasOutcome.CREATED
    assert asked == {"tables"}


def test_names_that_are_as_long_as_can_be_have_stages_too(workspace: Workspace, tables_url: str, schema: str) -> None:
    table = TableIdentifier("pg", "tables", f"{schema}.{'Ü.' * 21}")
    create(workspace, wanted(table), writes(tables_url, 1))
    create(workspace, wanted(table, REPLACE), writes(tables_url, 2))
    assert numbers(workspace, table) == [2]
    assert relations(tables_url, schema) == ["Ü." * 21]
