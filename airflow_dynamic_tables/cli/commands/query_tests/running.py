"""``test``: unit tests of queries, all in one Spark."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.commands.query_tests.reports import junit_xml, told
from airflow_dynamic_tables.cli.commands.refresh import spark_runner, stopped_like_ctrl_c
from airflow_dynamic_tables.cli.progress import progress_of
from airflow_dynamic_tables.cli.project import named_tables, project_of
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.cli.state import quiet_workspace_of
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.query_tests.model import QueryTest
from airflow_dynamic_tables.services.query_tests.judging import QueryTestResult, Verdict
from airflow_dynamic_tables.services.query_tests.loading import load_tests
from airflow_dynamic_tables.services.query_tests.running import run_tests


def test(arguments: Namespace) -> int:
    """Run the tests of some tables, or all, and print what became of them."""
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
        Path(arguments.junit_xml).write_bytes(junit_xml(results))
    is_well = all(result.verdict is Verdict.PASSED for result in results) and (not mistakes or bool(arguments.tables))
    return OK if is_well else FAILED


def _results(arguments: Namespace, definitions: Definitions, tests: Sequence[QueryTest]) -> list[QueryTestResult]:
    """Run tests on the Spark that the arguments name."""
    with quiet_workspace_of(arguments) as workspace:
        runner = spark_runner(SparkSettings(), arguments)
        return run_tests(workspace, tests, definitions.sources, runner.run_query_tests)


def results_without_arguments(path: Path, definitions: Definitions, tests: Sequence[QueryTest]) -> list[QueryTestResult]:
    """Run tests as the command does for these definitions when it is given nothing else."""
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
