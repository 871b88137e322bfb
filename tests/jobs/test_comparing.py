"""Comparison of rows with floating-point numbers, which may differ by a tolerance."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.jobs.comparing import drift

pytestmark = pytest.mark.spark

PLAN = RefreshPlan(
    "t", "a.b.c", datetime(2024, 1, 1, tzinfo=UTC), RefreshAction.VERIFY, "", "", "", "/tmp/x", "parquet", True, ("k",)
)

CASES = {
    # rows of the query, rows of the table, missing and extra with a tolerance of 1e-3
    "equal": ("(1, 1D), (1, NULL), (1, double('NaN')), (1, 0D)", "(1, double('NaN')), (1, -0D), (1, 1D), (1, NULL)", (0, 0)),
    "close": ("(1, 1000D), (2, -5D)", "(1, 1001D), (2, -5.005D)", (0, 0)),
    "apart": ("(1, 1000D)", "(1, 1002D)", (1, 1)),
    "around zero": ("(1, 1e-9D)", "(1, 0D)", (1, 1)),
    "other key": ("(1, 1000D)", "(2, 1001D)", (1, 1)),
    "null": ("(1, NULL)", "(1, 0D)", (1, 1)),
    "infinite": ("(1, double('Infinity')), (2, double('Infinity'))", "(1, 1D), (2, double('Infinity'))", (1, 1)),
    "not a number": ("(1, double('NaN'))", "(1, 1D)", (1, 1)),
    "opposite": ("(1, 1.7e308D)", "(1, -1.7e308D)", (1, 1)),
    "more often": ("(1, 2D), (1, 2D), (1, 2D)", "(1, 2D), (1, 2.001D)", (1, 0)),
    "in order": ("(1, 1D), (1, 2D), (NULL, 3D)", "(NULL, 3.001D), (1, 2.001D), (1, 1.001D)", (0, 0)),
    "other order": ("(1, 1D), (1, 2D)", "(1, 2.001D), (1, 3D)", (2, 2)),
}


def test_numbers_may_differ_by_the_tolerance(spark: SparkSession) -> None:
    """Each case is a partition."""
    ours, theirs = (
        spark.sql(
            " UNION ALL ".join(
                f"SELECT '{name}' AS k, cast(n AS int) AS n, cast(f AS double) AS f FROM VALUES {case[side]} AS t(n, f)"
                for name, case in CASES.items()
            )
        )
        for side in (0, 1)
    )
    plan = replace(PLAN, float_tolerance=1e-3)
    found = {one.partition["k"]: (one.rows, one.missing, one.extra) for one in drift(plan, ours, theirs)}
    assert found == {name: (theirs.count("), (") + 1, *expected) for name, (_, theirs, expected) in CASES.items()}
    strict = {one.partition["k"]: (one.missing, one.extra) for one in drift(PLAN, ours, theirs)}
    assert strict["equal"] == (0, 0)
    assert strict["close"] == (2, 2)
