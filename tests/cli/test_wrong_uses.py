"""What people do wrong with formats, catalogs, options and partition keys: the whole answer of ``validate``, and of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

CATALOGS = """\
catalogs:
  - {name: lake, type: sql}
  - {name: pg, type: jdbc, connection-params: {url: "postgresql://etl@127.0.0.1:1/shop"}}
  - {name: ice, type: iceberg, connection-params: {uri: "sqlite:///ice.db", warehouse: ice}}
  - {name: hms, type: hive, connection-params: {uri: "thrift://127.0.0.1:1"}}
"""
QUERY = "SELECT to_timestamp('2026-01-01') AS ts, cast(1 AS BIGINT) AS id, 'a' AS name, current_date() AS d"

_ANSWER = "--> "
CASES = [
    (case.partition(f"\n{_ANSWER}")[0], [line.removeprefix(_ANSWER) for line in case.split("\n") if line.startswith(_ANSWER)])
    for case in (Path(__file__).parent / "wrong_uses.txt").read_text(encoding="utf-8").strip().split("\n\n")
]
"""What a table says besides its freshness and its query, and the lines of the answer."""


@pytest.fixture
def folder(project: Path) -> Path:
    (project / "dags" / "catalogs.yaml").write_text(CATALOGS)
    definitions = project / "dags" / "definitions"
    (definitions / "sales.yaml").unlink()
    return definitions


def declare(folder: Path, said: str) -> None:
    indented = said.replace("\n", "\n    ")
    (folder / "t.yaml").write_text(f"dynamic_tables:\n  - {indented}\n    freshness: 1 day\n    query: {QUERY}\n")


@pytest.mark.parametrize(("said", "answer"), CASES, ids=[said.replace("\n", ", ") for said, _ in CASES])
def test_a_wrong_definition_gets_one_clear_answer(dynamic_tables: Run, folder: Path, said: str, answer: list[str]) -> None:
    declare(folder, said)
    ran = dynamic_tables("validate", "--without-spark")
    assert (ran.code, ran.out.splitlines()) == (1, [f"dags/definitions/t.yaml:{line}" for line in answer])


def test_there_are_far_more_than_thirty() -> None:
    assert len(CASES) > 45
    assert all(answer for _, answer in CASES)


KEYS = {
    "bucket(0,id)": "1:1: 'bucket(0,id)': how many buckets is a whole number from 1 to 2147483647, not 0",
    "day(ts), hour(ts)": "1:10: day(ts) and hour(ts) are of one column; hour(ts) alone says it all",
    "id, bucket(16, day(ts))": "1:5: 'bucket(16, day(ts))' is computed of 'day(ts)', and a transform takes a column as it is",
    "id,,name": "1:4: a key is missing here; take a comma away",
    "`id`": "1:1: the query returns no column '`id`'; write id",
    "identity(id)": "1:1: 'identity(id)' is the column itself; write id",
}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("keys", KEYS)
def test_a_wrong_key_of_a_table_made_once_is_told_where_it_stands(
    dynamic_tables: Run, folder: Path, keys: str, dry_run: bool
) -> None:
    said = ("ctas", "lake.s.t", "--query", QUERY, "--partitioned-by", keys)
    ran = dynamic_tables(*said, *(("--dry-run",) if dry_run else ()))
    assert (ran.code, ran.err) == (1, f"--partitioned-by:{KEYS[keys]}\n")
    assert list(folder.iterdir()) == []


STATEMENTS = {
    "CREATE TABLE lake.s.t PARTITIONED BY (id, bucket(0, id)) AS": (
        "1:43: 'bucket(0, id)': how many buckets is a whole number from 1 to 2147483647, not 0"
    ),
    "CREATE TABLE lake.s.t PARTITIONED BY (idd) AS": "1:39: the query returns no column 'idd'; did you mean 'id'?",
    "CREATE TABLE lake.s.t LOCATION '/x' AS": "1:23: expected USING, PARTITIONED, COMMENT or AS, found 'LOCATION'",
    "CREATE DYNAMIC TABLE lake.s.t PARTITIONED BY (day(ts)) WITH ('format' = 'delta') AS": (
        "1:47: day(ts) is computed of a column, which tables of format delta cannot be partitioned by; use format iceberg, or "
        "let the query return it as a column"
    ),
    "CREATE DYNAMIC TABLE lake.s.t WITH ('format' = 'jdbc') AS": (
        "1:48: catalog lake is of type sql, whose dynamic tables are of format iceberg | delta, not jdbc; write 'format: "
        "iceberg', or name another catalog"
    ),
    "CREATE DYNAMIC TABLE lake.s.t WITH ('delta.appendOnly' = 'true') AS": (
        "1:37: 'delta.appendOnly' is a property of Delta tables, which no refresh sets; 'version_max_age' says how long "
        "versions stay; remove it"
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_wrong_statement_is_told_where_it_stands(dynamic_tables: Run, folder: Path, statement: str) -> None:
    ran = dynamic_tables("sql", "-e", f"{statement} {QUERY}")
    assert (ran.code, (ran.out + ran.err).splitlines()[0]) == (1, f"-e:{STATEMENTS[statement]}")
    assert list(folder.glob("*.sql")) == []


def test_what_cannot_be_kept_is_not_registered_without_a_catalogs_file(dynamic_tables: Run, folder: Path) -> None:
    (folder.parent / "catalogs.yaml").unlink()
    declare(folder, "name: lake.s.t\nformat: jdbc")
    ran = dynamic_tables("create")
    told = "lake.s.t: catalog lake cannot hold jdbc tables; use format iceberg | parquet | orc | delta, or another catalog.\n"
    assert (ran.code, ran.err) == (1, told)


def test_options_that_nothing_heeds_are_a_warning(dynamic_tables: Run, folder: Path) -> None:
    declare(folder, "name: lake.s.t\noptions: {mergeSchema: true, owner.team: sales}")
    ran = dynamic_tables("validate", "--without-spark")
    told = "nothing heeds 'mergeSchema', 'owner.team' among its options; the catalog keeps them for others"
    assert ran.code == 0
    assert ran.err.splitlines()[0] == f"dags/definitions/t.yaml:2:1: warning: lake.s.t: {told}"
