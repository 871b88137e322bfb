"""``export``: what catalogs hold, as definitions that are read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

WITH_SECRET = """
defaults: {catalog: lake, database: sales}
dynamic_tables:
  - {name: a, freshness: 1 day, query: SELECT 1 AS x, spark: {conf: {spark.my.password: hidden}}}
  - {name: b, freshness: 1 hour, query: SELECT x FROM a}
"""


@pytest.mark.parametrize("form", ["yaml", "sql"])
def test_what_is_exported_is_no_change(project: Path, dynamic_tables: Run, form: str) -> None:
    folder = project / "dags" / "definitions"
    assert dynamic_tables("create").code == 0
    exported = dynamic_tables("export", "--as", form)
    assert (exported.code, exported.err) == (0, "")
    sources = (folder / "sales.yaml").read_text().partition("dynamic_tables:")[0]
    (folder / "sales.yaml").write_text(sources)
    (folder / f"exported.{form}").write_text(exported.out)
    assert dynamic_tables("validate", "--without-spark").code == 0
    compared = json.loads(dynamic_tables("diff", "--output", "json").out)
    assert [[field["name"] for field in one["fields"]] for one in compared] == [["query"], ["query"]], "names are full now"
    assert dynamic_tables("create").code == 0
    assert dynamic_tables("export", "--as", form).out == exported.out


def test_one_table_is_exported(dynamic_tables: Run) -> None:
    dynamic_tables("create")
    one = dynamic_tables("export", "--as", "sql", "total")
    assert one.out == (
        "CREATE DYNAMIC TABLE lake.sales.total\n"
        "FRESHNESS = INTERVAL '1' HOUR\n"
        "AS\n"
        "SELECT sum(revenue) AS revenue FROM lake.sales.daily_revenue;\n"
    )
    missing = dynamic_tables("export", "lake.sales.nothing")
    assert missing.code == 1
    assert "nothing" in missing.err


def test_secrets_are_told_and_not_written(project: Path, dynamic_tables: Run) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(WITH_SECRET)
    dynamic_tables("create")
    exported = dynamic_tables("export")
    assert "hidden" not in exported.out
    assert (
        exported.err == "lake.sales.a: spark.conf.spark.my.password is a secret, which catalogs do not keep; write it yourself\n"
    )
