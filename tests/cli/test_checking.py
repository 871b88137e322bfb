"""validate, plan and schema: what needs the definitions alone. What other programs read of it is pinned here."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from airflow_dynamic_tables.cli.main import main
from tests.cli.conftest import Run

BROKEN = """\
dynamic_tables:
  - name: lake.sales.broken
    freshness: 7 hours
    query: SELECT a FROM lake.raw.nowhere
  - name: lake.sales.worse
    fresness: 1 day
    query: SELECT FROM
"""


def test_names_are_completed_by_the_default_catalog_and_database(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables:\n- {name: one, freshness: 1 day, query: SELECT 1 AS a}\n"
        "- {name: two, freshness: 1 day, query: SELECT a FROM lake.sales.one}"
    )
    (project / "dags" / "catalogs.yaml").write_text("catalogs: [{name: lake, default-database: sales}]")
    assert dynamic_tables("validate").code == 0
    plans = json.loads(dynamic_tables("plan", "--output", "json").out)
    assert [(plan["identifier"], plan["upstream"]) for plan in plans] == [
        ("lake.sales.one", []),
        ("lake.sales.two", ["lake.sales.one"]),
    ]


def test_validate_sound_definitions(dynamic_tables: Run) -> None:
    ran = dynamic_tables("validate")
    assert (ran.code, ran.out) == (0, "")
    assert "OK: 2 tables, 1 source in" in ran.err


def test_validate_tells_of_a_scheduler_that_nobody_brings(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables:\n- {name: lake.sales.one, freshness: 1 day, query: SELECT 1 AS a, scheduler: dolphinsheduler}\n"
    )
    ran = dynamic_tables("validate", "--without-spark")
    assert ran.code == 1
    assert "sales.yaml:2:1: lake.sales.one: there is no scheduler 'dolphinsheduler'; known are airflow, dolph" in ran.out


def test_definitions_are_checked_without_a_java_that_does_not_start(
    dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "bin").mkdir()
    (project / "bin" / "java").symlink_to(shutil.which("false") or "")
    monkeypatch.setenv("JAVA_HOME", str(project))
    monkeypatch.setenv("DYNAMIC_TABLES_CACHE", "")
    ran = dynamic_tables("validate")
    assert (ran.code, ran.out) == (0, "")
    assert "Spark's parser does not answer" in ran.err
    assert "Spark did not parse the queries." in ran.err
    assert "does not answer" not in dynamic_tables("validate", "--without-spark").err


MINUTELY = "- {name: lake.sales.%s, format: %s, freshness: 1 minute, refresh_mode: full, query: SELECT 1 AS a, %s}\n"


def test_whoever_keeps_thousands_of_versions_is_told_what_that_costs(dynamic_tables: Run, project: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(
        "dynamic_tables:\n"
        + MINUTELY % ("week", "iceberg", "version_max_age: 7 days")
        + MINUTELY % ("hour", "iceberg", "version_max_age: 1 hour")
        + MINUTELY % ("without", "iceberg", "owner: me")
        + MINUTELY % ("hive", "parquet", "version_max_age: 7 days")
    )
    ran = dynamic_tables("validate")
    assert (ran.code, ran.out) == (0, "")
    warnings = [line for line in ran.err.splitlines() if "versions" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"{file.relative_to(project)}:2:1: warning: lake.sales.week: its retention keeps about 10,080 versions"
    )


def test_validate_prints_every_mistake_of_every_file(dynamic_tables: Run, project: Path) -> None:
    folder = project / "dags" / "definitions"
    (folder / "broken.yaml").write_text(BROKEN)
    (folder / "also.yaml").write_text("dynamic_tables: [")
    ran = dynamic_tables("validate", "--definitions", str(folder))
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert all(re.fullmatch(rf"{folder}/(also|broken)\.yaml:\d+:\d+: \S.*", line) for line in lines)
    assert {line.rpartition("/")[2].partition(":")[0] for line in lines} == {"also.yaml", "broken.yaml"}
    assert any(":3:16: " in line for line in lines)
    assert any(":6:5: " in line and "did you mean 'freshness'" in line for line in lines)


def test_validate_one_file(dynamic_tables: Run, project: Path) -> None:
    file = project / "dags" / "definitions" / "broken.yaml"
    file.write_text(BROKEN)
    assert dynamic_tables("validate", "--definitions", str(file)).code == 1
    assert dynamic_tables("validate", "--definitions", str(file.with_name("sales.yaml"))).code == 0


def test_definitions_that_are_not_there(dynamic_tables: Run) -> None:
    ran = dynamic_tables("validate", "--definitions", "nowhere")
    assert (ran.code, ran.out, ran.err) == (1, "", "No definitions at nowhere; name their folder with --definitions.\n")


def test_where_definitions_are_looked_for(dynamic_tables: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert "No definitions at dags/definitions or" in dynamic_tables("plan").err
    (project / "airflow").mkdir()
    (project / "dags").rename(project / "airflow" / "dags")
    assert dynamic_tables("plan").code == 0
    (elsewhere / "empty").mkdir()
    monkeypatch.setenv("DYNAMIC_TABLES_DEFINITIONS", "empty")
    assert json.loads(dynamic_tables("plan", "-o", "json").out) == []


def test_plan_is_the_frozen_contract(dynamic_tables: Run, project: Path) -> None:
    line = ["plan", "--definitions", str(project / "dags"), "--schedule-time", "2024-01-02 00:00:00", "--output", "json"]
    ran = dynamic_tables(*line)
    assert (ran.code, ran.err) == (0, "")
    planned = {entry["identifier"]: entry for entry in json.loads(ran.out)}
    assert list(planned) == ["lake.sales.daily_revenue", "lake.sales.total"]
    daily, total = planned.values()
    keys = {
        "identifier",
        "freshness_seconds",
        "refresh_mode",
        "mode_reason",
        "cron",
        "timezone",
        "partitions",
        "upstream",
        "statement",
    }
    assert keys <= daily.keys()
    assert daily["atomicity"] == "staged"
    assert daily["freshness_seconds"] == 86_400
    assert daily["refresh_mode"] == "FULL"
    assert "30 minutes" in daily["mode_reason"]
    assert (daily["cron"], daily["timezone"]) == ("0 0 * * *", "Europe/Berlin")
    assert daily["partitions"] == [{"ds": "2024-01-01"}]
    assert daily["upstream"] == ["lake.raw.orders"]
    assert "`ds` = '2024-01-01'" in daily["statement"]
    assert daily["schedule_time"] == "2024-01-02T00:00:00+01:00"
    assert (total["cron"], total["timezone"], total["partitions"]) == ("0 * * * *", "UTC", [])
    assert total["upstream"] == ["lake.sales.daily_revenue"]


def test_plan_takes_tables_before_and_between_options(dynamic_tables: Run) -> None:
    for argv in (
        ["total", "--definitions", "dags", "--output", "json"],
        ["--definitions", "dags", "sales.total", "--output", "json"],
        ["--definitions", "dags", "--output", "json", "lake.sales.total"],
    ):
        assert [entry["identifier"] for entry in json.loads(dynamic_tables("plan", *argv).out)] == ["lake.sales.total"]


def test_plan_shows_what_was_accepted(dynamic_tables: Run, project: Path) -> None:
    file = project / "dags" / "definitions" / "sales.yaml"
    file.write_text(file.read_text().replace("  - name: total\n", "  - name: total\n    format: orc\n    atomicity: none\n"))
    plans = json.loads(dynamic_tables("plan", "-o", "json").out)
    assert [entry["atomicity"] for entry in plans] == ["staged", "none"]
    assert "atomicity" in dynamic_tables("plan", "total").out


def test_plan_with_an_offset(dynamic_tables: Run) -> None:
    ran = dynamic_tables("plan", "daily_revenue", "--schedule-time", "2024-01-01T23:00:00Z", "-o", "json")
    assert json.loads(ran.out)[0]["partitions"] == [{"ds": "2024-01-01"}]


def test_plan_without_a_time_is_for_the_latest_tick(dynamic_tables: Run) -> None:
    ran = dynamic_tables("plan", "daily_revenue", "-o", "json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT00:00:00\+0[12]:00", json.loads(ran.out)[0]["schedule_time"])


def test_plan_as_yaml_and_as_a_table(dynamic_tables: Run) -> None:
    as_yaml = yaml.safe_load(dynamic_tables("plan", "-o", "yaml").out)
    assert [entry["identifier"] for entry in as_yaml] == ["lake.sales.daily_revenue", "lake.sales.total"]
    overview = dynamic_tables("plan").out
    assert "lake.sales.total" in overview
    assert "SELECT" not in overview
    detail = dynamic_tables("plan", "total").out
    assert "SELECT * FROM (" in detail
    assert "the complete table" in detail
    assert "daily_revenue" not in detail.partition("upstream")[0]


def test_plan_of_an_unknown_table(dynamic_tables: Run) -> None:
    ran = dynamic_tables("plan", "daily_revenu")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "No dynamic table daily_revenu is defined; did you mean lake.sales.daily_revenue?\n"
    assert "defined are: lake.sales.daily_revenue, lake.sales.total" in dynamic_tables("plan", "zzz").err


def test_plan_of_an_ambiguous_table(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "more.yaml").write_text(
        "dynamic_tables: [{name: lake.other.total, freshness: 1 day, query: SELECT 1 AS one}]"
    )
    ran = dynamic_tables("plan", "total")
    assert ran.code == 1
    assert "may be any of lake.other.total, lake.sales.total" in ran.err


def test_a_broken_definition_hides_no_other_table(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "broken.yaml").write_text(BROKEN)
    everything = dynamic_tables("plan", "-o", "json")
    assert everything.code == 1
    assert "lake.sales.total" in {entry["identifier"] for entry in json.loads(everything.out)}
    assert "broken.yaml:3:16: " in everything.err
    assert dynamic_tables("plan", "total", "-o", "json").code == 0


def test_plan_says_what_a_turn_of_a_continuous_table_is_and_why(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(
        "dynamic_tables:\n- {name: live, freshness: 10 seconds, query: SELECT 1 AS x}\n"
        "- {name: said, freshness: 10 seconds, continuous: {strategy: micro-refresh}, query: SELECT 1 AS x}\n"
        "- {name: daily, freshness: 1 day, query: SELECT 1 AS x}\n"
    )
    plans = json.loads(dynamic_tables("plan", "-o", "json").out)
    assert {plan["identifier"].split(".")[2]: (plan["strategy"], plan["strategy_reason"]) for plan in plans} == {
        "live": ("micro-refresh", "every source has files, and nothing has to be kept between two batches"),
        "said": ("micro-refresh", "strategy micro-refresh is declared"),
        "daily": (None, None),
    }
    assert "strategy micro-refresh is declared" in dynamic_tables("plan", "said").out


def test_schema_accepts_what_is_sound(dynamic_tables: Run, project: Path) -> None:
    ran = dynamic_tables("schema")
    assert ran.code == 0
    schema = json.loads(ran.out)
    Draft202012Validator.check_schema(schema)
    sound = yaml.safe_load((project / "dags" / "definitions" / "sales.yaml").read_text())
    assert list(Draft202012Validator(schema).iter_errors(sound)) == []
    assert list(Draft202012Validator(schema).iter_errors(yaml.safe_load(BROKEN)))


def test_errors_are_one_line_and_debug_shows_where(dynamic_tables: Run) -> None:
    assert dynamic_tables("plan", "zzz").err.count("\n") == 1
    assert "Traceback" in dynamic_tables("plan", "zzz", "--debug").err


def test_plan_loads_no_catalog_no_spark_and_no_airflow(project: Path) -> None:
    code = (
        "import sys\n"
        "from airflow_dynamic_tables.cli.main import main\n"
        "main(['plan', '--output', 'json']); main(['validate', '--without-spark'])\n"
        "sys.exit(', '.join({'airflow', 'pyspark', 'pyiceberg', 'sqlalchemy'} & set(sys.modules)) or 0)"
    )
    root = str(Path(__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    root = str(Path(__file__).parents[2])
    command = f"{sys.executable} -m airflow_dynamic_tables.cli.main schema | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=project, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert re.fullmatch(r"dynamic-tables(, not installed| \d+\.\d+\.\d+.*)\n", capsys.readouterr().out)


EXPLAINED = """\
defaults: {catalog: lake, database: sales, freshness: 1 day}
sources:
- {name: raw.orders, format: parquet, path: /orders, schema: "id bigint, customer bigint", partitioned_by: [ds]}
- {name: crm.customers, format: parquet, path: /customers, schema: "id bigint, ds string"}
- {name: crm.people, format: iceberg}
views:
- {name: known, query: SELECT o.ds FROM raw.orders o JOIN crm.customers c ON o.customer = c.id}
dynamic_tables:
- {name: sound, partitioned_by: [ds], query: "SELECT ds, count(*) AS n FROM raw.orders GROUP BY ds"}
- {name: viewed, partitioned_by: [ds], query: SELECT ds FROM known}
- name: totals
  partitioned_by: [ds]
  query: |
    SELECT o.ds,
      sum(o.id) OVER (ORDER BY o.ds) AS n
    FROM raw.orders AS o
- {name: by_customer, partitioned_by: [ds], query: SELECT ds FROM crm.customers}
- {name: heedless, partitioned_by: [ds], query: SELECT ds FROM crm.customers, on_change: {crm.customers: ignore}}
- {name: whole, query: SELECT id FROM raw.orders LIMIT 3}
- name: by_person
  partitioned_by: [ds]
  on_change: {crm.people: affected}
  query: SELECT o.ds FROM raw.orders o JOIN crm.people p ON o.customer = p.id
- name: by_any
  partitioned_by: [ds]
  on_change: {crm.people: affected}
  query: SELECT o.ds FROM raw.orders o JOIN crm.people p ON o.id > p.id
- name: by_file
  partitioned_by: [ds]
  on_change: {crm.customers: affected}
  query: SELECT o.ds FROM raw.orders o JOIN crm.customers c ON o.id = c.id
"""


def test_validate_explains_what_hides_partitions(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(EXPLAINED)
    assert dynamic_tables("validate", "--without-spark").out == ""
    ran = dynamic_tables("validate", "--without-spark", "--explain")
    assert ran.code == 0
    viewed, totals, by_customer, by_any, by_file = ran.out.splitlines()
    assert re.search(
        r"sales.yaml:10:\d+: JOIN: lake.sales.viewed: a change of lake.crm.customers counts for every ds, because", viewed
    )
    assert "sales.yaml:15:11: WINDOW: lake.sales.totals: a change of lake.raw.orders counts for every ds" in totals
    assert "; add the key, as the query returns it, to PARTITION BY" in totals
    assert "NOT_PARTITIONED: lake.sales.by_customer: a change of lake.crm.customers counts for every ds" in by_customer
    assert re.search(
        r":27:45: JOIN: lake.sales.by_any: .* because no condition equates a column of p with one of a table", by_any
    )
    assert re.search(
        r"NO_VERSIONS: lake.sales.by_file: .* because lake.crm.customers has the format parquet, which keeps no", by_file
    )


UNMERGED = """defaults: {catalog: lake, database: sales}
sources:
- {name: raw.orders, format: iceberg}
- {name: crm.customers, format: iceberg}
dynamic_tables:
- name: means
  refresh_mode: incremental
  partitioned_by: [ds]
  query: |
    SELECT o.ds,
      avg(o.amount) AS mean
    FROM raw.orders AS o GROUP BY o.ds
- {name: rows, refresh_mode: incremental, partitioned_by: [ds], query: SELECT ds FROM raw.orders}
- name: customers
  refresh_mode: incremental
  on_change: {crm.customers: affected}
  partitioned_by: [ds]
  query: SELECT o.ds, c.id FROM raw.orders o LEFT JOIN crm.customers c ON o.customer = c.id
- name: full
  query: SELECT avg(amount) AS mean FROM raw.orders
"""


def test_validate_explains_what_is_not_merged(dynamic_tables: Run, project: Path) -> None:
    (project / "dags" / "definitions" / "sales.yaml").write_text(UNMERGED)
    ran = dynamic_tables("validate", "--without-spark", "--explain")
    assert ran.code == 0
    (told,) = ran.out.splitlines()
    assert told.endswith(
        "sales.yaml:11:11: NOT_MERGED: lake.sales.means: new rows of lake.raw.orders are not merged, because AVG(o.amount) is "
        "merged from its parts; add sum(o.amount) and count(o.amount) to the query"
    )
