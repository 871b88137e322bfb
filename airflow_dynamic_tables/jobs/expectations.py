"""Expectations of rows: some rows are left out before they are written, the others are counted in what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, ExpectationResult


def without_dropped(frame: DataFrame, expectations: Sequence[Expectation]) -> tuple[DataFrame, Callable[[int], dict[str, int]]]:
    """The rows that are not to be left out.

    :return: them, and a function that says, once they were written and are so many, how many violated each expectation; they
        are counted on their way, not by running the query a second time.
    """
    violated = {expected.name: _violated(expected) for expected in expectations if expected.action is Action.DROP}
    if not violated:
        return frame, lambda _: {}
    observation = Observation()
    counted = frame.observe(observation, *(F.count_if(column).alias(name) for name, column in violated.items()))
    kept = counted.where(~reduce(or_, violated.values()))
    return kept, lambda rows: _observed(observation, violated, rows)


def _observed(observation: Observation, names: Iterable[str], rows: int) -> dict[str, int]:
    try:
        counted = observation.get
        return {name: counted[name] for name in names}
    except Exception:  # of Py4J or of a dictionary: it depends on where Spark is
        if rows:
            raise
        return dict.fromkeys(names, 0)  # Spark saw before it began that there is no row at all, and so counted none


def violations_in_stage(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """Aggregates, by name of the expectation: how many of the staged rows violate its predicate."""
    return {
        expected.name: F.count_if(_violated(expected))
        for expected in expectations
        if expected.predicate is not None and expected.action is not Action.DROP
    }


def repeated(stored: DataFrame, expectations: Sequence[Expectation]) -> dict[str, int]:
    """How many of the staged rows share the columns that are to be unique, by name of the expectation."""
    return {expected.name: _repeated(stored, expected.unique) for expected in expectations if expected.unique}


def results(expectations: Sequence[Expectation], violations: Mapping[str, int]) -> tuple[ExpectationResult, ...]:
    """The result of each, in the order of the expectations."""
    return tuple(ExpectationResult(expected.name, expected.action, violations[expected.name]) for expected in expectations)


def _violated(expectation: Expectation) -> Column:
    # On lines of its own, because it may end with a comment.
    return F.coalesce(F.expr(f"NOT (\n{expectation.predicate}\n)"), F.lit(False))


def _repeated(stored: DataFrame, columns: Sequence[str]) -> int:
    keys = [F.col(quote(column)) for column in columns]
    groups = stored.dropna(subset=[quote(column) for column in columns]).groupBy(*keys).agg(F.count("*").alias("rows"))
    return int(groups.where("rows > 1").agg(F.coalesce(F.sum("rows"), F.lit(0))).collect()[0][0])
