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
    """The folder of definitions of a project with catalogs of every type."""
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
