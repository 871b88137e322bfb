"""``validate`` and ``apply`` ask Spark about the columns of changed queries, and run nothing."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import open_workspace
from tests.cli.conftest import Run
from tests.support.pyarrow_job import write_numbers

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java")]

NUMBERS = """\
  - name: numbers
    freshness: 1 day
    query: SELECT sum(amount) AS x FROM raw.orders
  - name: twice
    freshness: 1 day
    query: |
      -- of the parent
      SELECT numbers.x * 2 AS x2
      FROM numbers
"""


@pytest.fixture(autouse=True)
def definitions(project: Path) -> Path:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text() + NUMBERS)
    return file


def declare(file: Path, old: str, new: str) -> str:
    """Change the definitions."""
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    before = text.partition(old)[0]
    return f"sales.yaml:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}:"


def fill(file: Path) -> None:
    """A first refresh of ``numbers``, which makes its column ``x bigint``."""
    defined = load_definitions(file)
    table = defined.tables[TableIdentifier("lake", "sales", "numbers")]
    with open_workspace(embedded_settings(os.environ)) as workspace:
        run(workspace, RefreshRequest(table, defined.sources, datetime(2024, 3, 1, tzinfo=UTC), "t1", "a test"), write_numbers)


@pytest.mark.large
def test_a_misspelled_column_is_told_at_its_place_with_the_right_one(definitions: Path, dynamic_tables: Run) -> None:
    where = declare(definitions, "numbers.x * 2", "numbers.y * 2")
    ran = dynamic_tables("validate")
    assert ran.code == 1
    assert where in ran.out
    assert "with name `numbers`.`y` cannot be resolved. Did you mean one of the following? [`numbers`.`x`]" in ran.out
    assert len(ran.out.splitlines()) == 1
    assert not (definitions.parents[2] / "airflow").exists()  # where the state would begin


@pytest.mark.large
def test_columns_of_sources_keys_and_of_what_reads_them_are_known(definitions: Path, dynamic_tables: Run) -> None:
    assert dynamic_tables("validate").code == 0
    where = declare(definitions, "ds, sum(amount) AS revenue", "ds, sum(price) AS revenue")
    ran = dynamic_tables("validate")
    assert (ran.code, "with name `price` cannot be resolved. Did you mean" in ran.out) == (1, True)
    assert where.rpartition(":")[0].rpartition(":")[0] in ran.out


def test_what_cannot_be_checked_is_told_and_is_no_mistake(definitions: Path, dynamic_tables: Run) -> None:
    declare(definitions, "    schema: customer STRING, amount BIGINT, ds STRING\n", "")
    ran = dynamic_tables("validate")
    assert ran.code == 0
    assert "The columns of lake.sales.numbers were not checked: the columns of lake.raw.orders are not known." in ran.err


def test_queries_that_were_asked_about_are_not_asked_about_again(
    definitions: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dynamic_tables("validate")

    def start(_: SparkParser) -> None:
        raise OSError("it is started")

    monkeypatch.setattr(SparkParser, "_start", start)
    assert "Spark" in dynamic_tables("validate").err
    declare(definitions, "numbers.x * 2", "numbers.x * 3")
    assert "it is started" in dynamic_tables("validate").err


def test_a_catalog_that_cannot_be_asked_keeps_nobody_from_checking(
    definitions: Path, dynamic_tables: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(definitions)
    params = "{type: rest, uri: 'http://127.0.0.1:1'}"
    (definitions.parents[1] / "catalogs.yaml").write_text(
        f"catalogs: [{{name: lake, type: iceberg, connection-params: {params}}}]"
    )
    ran = dynamic_tables("validate")
    assert ran.code == 0
    assert "Columns are checked without catalog lake: " in ran.err
    monkeypatch.setenv("DYNAMIC_TABLES_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert dynamic_tables("validate").code == 0


@pytest.mark.large
def test_a_type_that_does_not_fit_is_told_as_the_refresh_would(definitions: Path, dynamic_tables: Run) -> None:
    fill(definitions)
    assert dynamic_tables("validate").code == 0
    declare(definitions, "sum(amount) AS x", "CAST(sum(amount) AS DECIMAL(12, 2)) AS x")
    ran = dynamic_tables("validate")
    told = "Column 1 was x bigint, but the query returns x decimal(12,2); columns can only be appended"
    assert ran.code == 0
    assert re.search(rf"sales\.yaml:\d+:1: warning: lake\.sales\.numbers: {re.escape(told)}", ran.err)
    ran = dynamic_tables("apply")
    assert (ran.code, told in ran.out, "It takes apply --refresh." in ran.out) == (1, True, True)


@pytest.mark.large
def test_what_is_deployed_tells_the_columns_and_a_parent_that_changes_those_of_its_children(
    definitions: Path, dynamic_tables: Run
) -> None:
    fill(definitions)
    dynamic_tables("apply", "--without-spark")
    declare(definitions, "    schema: customer STRING, amount BIGINT, ds STRING\n", "")
    declare(definitions, "numbers.x * 2", "numbers.x * 3")
    assert dynamic_tables("validate").code == 0
    declare(definitions, "sum(amount) AS x FROM raw.orders", "1L AS x, 2 AS y")
    declare(definitions, "numbers.x * 3 AS x2", "numbers.x * 3 AS x2, y")
    ran = dynamic_tables("validate")
    assert (ran.code, ran.out) == (0, "")
    declare(definitions, "1L AS x, 2 AS y", "1L AS z, 2 AS y")
    ran = dynamic_tables("validate")
    assert (ran.code, "`numbers`.`x` cannot be resolved" in ran.out) == (1, True)


def test_apply_leaves_a_query_alone_that_spark_refuses(definitions: Path, dynamic_tables: Run) -> None:
    assert dynamic_tables("apply").code == 0
    where = declare(definitions, "numbers.x * 2", "numbers.y * 2")
    ran = dynamic_tables("apply")
    assert ran.code == 1
    assert "not done" in ran.out
    assert where.removesuffix(":") in ran.out.replace("\n", "")
    assert "lake.sales.twice" in dynamic_tables("diff").out
    assert dynamic_tables("apply", "--without-spark").code == 0


@pytest.mark.large
def test_a_collation_is_told_once_by_its_column(definitions: Path, dynamic_tables: Run) -> None:
    declare(definitions, "SELECT sum(amount) AS x FROM raw.orders", "SELECT customer COLLATE UTF8_LCASE AS x FROM raw.orders")
    declare(definitions, "numbers.x * 2", "numbers.x")
    ran = dynamic_tables("validate")
    assert ran.code == 0
    assert ran.err.count("warning: lake.sales.numbers: column 'x' has collation") == 1
    assert ran.err.count("has collation") == 1
