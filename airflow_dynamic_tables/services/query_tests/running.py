"""Unit tests, planned, run in one Spark and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.query_tests.plan import QueryTestOutcomes, QueryTestPlan, QueryTestPlans
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.definitions.query_tests.model import QueryTest
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.services.query_tests.judging import QueryTestResult, error_of, judge
from airflow_dynamic_tables.services.query_tests.planning import plan_test
from airflow_dynamic_tables.services.workspace import Workspace

Run = Callable[[QueryTestPlans], QueryTestOutcomes]
"""Runs tests on some Spark, see :meth:`~airflow_dynamic_tables.runners.base.Runner.run_query_tests`."""


def run_tests(
    workspace: Workspace, tests: Sequence[QueryTest], sources: Mapping[TableIdentifier, Source], run: Run
) -> list[QueryTestResult]:
    """Run tests, all in one Spark; the results are in their order. Spark is not started for none.

    :param sources: those of the definitions.
    :raises DynamicTableError: as of ``run``; a test that cannot be planned is a result.
    """
    results: dict[int, QueryTestResult] = {}
    plans: dict[int, QueryTestPlan] = {}
    for number, test in enumerate(tests):
        try:
            plans[number] = plan_test(workspace, test, sources)
        except DynamicTableError as error:
            results[number] = error_of(test, str(error))
    outcomes = run(QueryTestPlans(tuple(plans.values()))).outcomes if plans else ()
    for number, outcome in zip(plans, outcomes, strict=True):
        results[number] = judge(tests[number], outcome)
    return [results[number] for number in range(len(tests))]
