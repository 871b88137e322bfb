"""``test``: run query tests, and print their results as text or as JUnit XML."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from xml.etree import ElementTree

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import MASTER, OUTPUT, STATE, TABLES, Argument
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.commands.refresh import spark_runner, stopped_like_ctrl_c
from airflow_dynamic_tables.cli.project import named_tables, project_of
from airflow_dynamic_tables.cli.running import FAILED, OK, progress_of
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.core.query_test_values import PlainRow, RowDifferences
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.query_test_rows import QueryTest
from airflow_dynamic_tables.services.project import load_tests
from airflow_dynamic_tables.services.query_tests import QueryTestResult, Verdict, run_tests

_SHOWN_ROWS = 20
"""Maximum number of rows printed of each kind; json and yaml contain all."""


def told(result: QueryTestResult) -> list[str]:
    """Return the lines that describe a test that did not pass: its place and the differences."""
    if result.verdict is Verdict.PASSED:
        return []
    found = result.difference or RowDifferences()
    lines = [f"{result.place}: {result.message}" if result.message else result.place]
    lines += _shown("missing", found.missing) + _shown("extra", found.extra)
    for changed in found.changed[:_SHOWN_ROWS]:
        cells = (f"{name}: expected {_value(changed.expected[name])}, got {_value(changed.got[name])}" for name in changed.got)
        lines.append(f"changed {_row(changed.alike)}  " + "; ".join(cells))
    return [*lines, *_left_out("changed", len(found.changed))]


def _shown(what: str, rows: Sequence[PlainRow]) -> list[str]:
    return [*(f"{what:<7} {_row(row)}" for row in rows[:_SHOWN_ROWS]), *_left_out(what, len(rows))]


def _left_out(what: str, count: int) -> list[str]:
    return [f"{what:<7} … and {count - _SHOWN_ROWS:,} more; -o json has all"] if count > _SHOWN_ROWS else []


def _row(row: PlainRow) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str) and value and value != "NULL" and value.isprintable() and value.strip() == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _junit_xml(results: Sequence[QueryTestResult]) -> bytes:
    counts = {verdict: str(sum(result.verdict is verdict for result in results)) for verdict in Verdict}
    total = {"tests": str(len(results)), "failures": counts[Verdict.FAILED], "errors": counts[Verdict.ERROR]}
    suite = ElementTree.Element("testsuite", {"name": "dynamic-tables", **total})
    for result in results:
        names = {"classname": str(result.table), "name": result.name, "time": f"{result.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", {key: _of_xml(text) for key, text in names.items()})
        if lines := told(result):
            problem = ElementTree.SubElement(case, "failure" if result.verdict is Verdict.FAILED else "error")
            problem.set("message", _of_xml(result.message or "the rows differ"))
            problem.text = _of_xml("\n".join(lines))
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _of_xml(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)


@command(
    "test",
    "run the unit tests of queries",
    (
        TABLES,
        Argument(("--junit-xml",), "also write the results to this file, in the format of CI servers", {"metavar": "FILE"}),
        MASTER,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def test(arguments: Namespace) -> int:
    """Run the tests beside the definitions, all in one Spark session: each query reads the rows of its test.

    No real table is read or written. Prints missing, extra and changed rows. Exits with 1 unless all tests pass.
    """
    progress = progress_of(arguments)
    with progress.step("Reading the definitions"):
        definitions, tests, mistakes = load_tests(project_of(arguments))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    wanted = {table.identifier for table in named_tables(definitions, arguments.tables)}
    chosen = [test for test in tests if test.table.identifier in wanted]
    with progress.step("Starting Spark") if chosen else nullcontext(), stopped_like_ctrl_c():
        results = _results(arguments, definitions, chosen)
    _print(results, arguments.output)
    if arguments.junit_xml:
        Path(arguments.junit_xml).write_bytes(_junit_xml(results))
    is_well = all(result.verdict is Verdict.PASSED for result in results) and (not mistakes or bool(arguments.tables))
    return OK if is_well else FAILED


def _results(arguments: Namespace, definitions: Definitions, tests: Sequence[QueryTest]) -> list[QueryTestResult]:
    with quiet_workspace_of(arguments) as workspace:
        runner = spark_runner(SparkSettings(), arguments)
        return run_tests(workspace, tests, definitions.sources, runner.run_query_tests)


def results_without_arguments(path: Path, definitions: Definitions, tests: Sequence[QueryTest]) -> list[QueryTestResult]:
    """Run tests as the command does for these definitions without any options."""
    arguments = Namespace(definitions=str(path), catalogs=None, database_url=None, master=None)
    return _results(arguments, definitions, tests)


def _print(results: Sequence[QueryTestResult], form: str) -> None:
    if form != "table":
        output.listing(results, form)
        return
    for result in results:
        print(f"{result.verdict.value:<6}  {result.full_name}  {result.seconds:.1f} s")
        for line in told(result):
            print(f"        {line}")
    counts = {verdict.value: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    summary = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    print(summary or "There are no tests.", file=sys.stderr)
