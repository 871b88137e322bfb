"""Expectations: rows to drop are left out before writing, other violations are counted in the written rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation, ExpectationResult, Relationship
from airflow_dynamic_tables.core.refresh.plan import DROPPED_COLUMNS, DROPPED_KEYS, RefreshPlan
from airflow_dynamic_tables.jobs.column_types import ddl


def without_dropped(frame: DataFrame, expectations: Sequence[Expectation]) -> tuple[DataFrame, Callable[[], dict[str, int]]]:
    """The rows without those that expectations drop.

    :return: the rows, and a function that returns the violations of each expectation; they are counted during writing, without
        running the query twice, unless Spark loses them.
    """
    violated = {expected.name: _violated(expected) for expected in expectations if expected.action is Action.DROP}
    if not violated:
        return frame, dict
    observation = Observation()
    counts = [F.count_if(column).alias(name) for name, column in violated.items()]
    kept = frame.observe(observation, *counts).where(~reduce(or_, violated.values()))

    def count() -> dict[str, int]:
        try:
            return {name: observation.get[name] for name in violated}
        except Exception:  # the type depends on the kind of session: Py4J's error or a KeyError
            # Spark knew that there are no rows; Spark 3.5 forgets the counts of a stage without rows, and a server of Spark 4.0
            # may end a query before it has its counts.
            return frame.agg(*counts).collect()[0].asDict()

    return kept, count


def dropped_rows(frame: DataFrame, plan: RefreshPlan, at: datetime, partition: Mapping[str, str | None]) -> DataFrame:
    """The rows that expectations drop, after the columns that say when, by which refresh and for which expectations.

    :param partition: that of the refresh in the table of dropped rows.
    """
    violated = {expected.name: _violated(expected) for expected in plan.expectations if expected.action is Action.DROP}
    names = F.array_compact(F.array(*(F.when(column, F.lit(name)) for name, column in violated.items())))
    time = F.timestamp_micros(F.lit(round(at.timestamp() * 1_000_000)))
    said = (*(F.lit(partition[key]) for key in DROPPED_KEYS), time, names)
    columns = (column.alias(name) for name, column in zip(DROPPED_COLUMNS, said, strict=True))
    return frame.where(reduce(or_, violated.values())).select(*columns, *(F.col(quote(name)) for name in frame.columns))


def check_dropped(stored: DataFrame, violations: Mapping[str, int]) -> None:
    """Check that the dropped rows, for which the query ran again, are those that were left out.

    :param stored: the dropped rows as written.
    :param violations: how many of the rows that were left out violate each expectation.
    :raises ValueError: when they are others.
    """
    names = F.col(DROPPED_COLUMNS[-1])
    counts = [F.count_if(F.array_contains(names, name)).alias(name) for name in violations]
    found = stored.agg(*counts).collect()[0].asDict()
    for name, number in violations.items():
        if found[name] != number:
            raise ValueError(
                f"the query returned {number} rows that violate {name!r}, and {found[name]} when it ran again, so it "
                "does not return the same rows each time; make it do so, or remove 'keep_dropped'"
            )


def violations_in_stage(expectations: Sequence[Expectation]) -> dict[str, Column]:
    """Aggregates by name of the expectation: the number of staged rows that violate its predicate."""
    return {
        expected.name: F.count_if(_violated(expected))
        for expected in expectations
        if expected.predicate is not None and expected.action is not Action.DROP
    }


def repeated(stored: DataFrame, expectations: Sequence[Expectation], others: DataFrame | None = None) -> dict[str, int]:
    """The number of staged rows with duplicates in the unique columns, by name of the expectation.

    :param others: the rows of the other partitions, for expectations across partitions.
    """
    return {
        expected.name: _repeated(stored, expected.unique, others if expected.across_partitions else None)
        for expected in expectations
        if expected.unique
    }


def unmatched(
    stored: DataFrame, plan: RefreshPlan, referenced: Mapping[str, DataFrame], others: DataFrame | None = None
) -> dict[str, int]:
    """The number of staged rows whose relationship finds no row in the other table, by name of the expectation.

    :param referenced: the rows of the other tables by full name.
    :param others: the rows of the other partitions, for relationships to the table itself.
    :raises ValueError: when the other table does not have the columns, or has them in types that are not comparable.
    """
    counts = {}
    for expected in plan.expectations:
        if (relationship := expected.relationship) is not None:
            is_own = relationship.to == plan.identifier
            parts = [stored if is_own else referenced[relationship.to]]
            if is_own and others is not None and _has(others, relationship.to_columns):
                parts.append(others)
            counts[expected.name] = _unmatched(stored, relationship, parts)
    return counts


def results(expectations: Sequence[Expectation], violations: Mapping[str, int]) -> tuple[ExpectationResult, ...]:
    """The results in the order of the expectations."""
    return tuple(ExpectationResult(expected.name, expected.action, violations[expected.name]) for expected in expectations)


def _violated(expectation: Expectation) -> Column:
    # On separate lines, because the predicate may end with a comment.
    return F.coalesce(F.expr(f"NOT (\n{expectation.predicate}\n)"), F.lit(False))


def _repeated(stored: DataFrame, columns: Sequence[str], others: DataFrame | None) -> int:
    names = [f"key_{number}" for number in range(len(columns))]
    keys = stored.select(*_aliased(columns, names), F.lit(1).alias("staged"))
    if others is not None and _has(others, columns):  # a new column is null in other partitions
        keys = keys.union(others.select(*_aliased(columns, names), F.lit(0).alias("staged")))
    groups = keys.dropna(subset=names).groupBy(*names).agg(F.count("*").alias("rows"), F.sum("staged").alias("staged"))
    return int(groups.where("rows > 1").agg(F.coalesce(F.sum("staged"), F.lit(0))).collect()[0][0])


def _has(frame: DataFrame, columns: Sequence[str]) -> bool:
    return {column.lower() for column in columns} <= {column.lower() for column in frame.columns}


def _unmatched(stored: DataFrame, relationship: Relationship, parts: Sequence[DataFrame]) -> int:
    names = [f"key_{number}" for number in range(len(relationship.columns))]
    for part in parts:
        _check_columns(stored, relationship, part)
    found = (part.select(*_aliased(relationship.to_columns, names)) for part in parts)
    rows = stored.select(*_aliased(relationship.columns, names)).dropna(subset=names)
    return rows.join(reduce(lambda one, other: one.union(other), found), names, "left_anti").count()


def _check_columns(stored: DataFrame, relationship: Relationship, part: DataFrame) -> None:
    types, to_types = ({field.name.lower(): ddl(field.dataType) for field in frame.schema.fields} for frame in (stored, part))
    if missing := [column for column in relationship.to_columns if column.lower() not in to_types]:
        raise ValueError(f"{relationship.to} has no column {missing[0]!r}, to which an expectation refers")
    if problem := relationship.type_problem(types, to_types):
        raise ValueError(problem[1])


def _aliased(columns: Sequence[str], names: Sequence[str]) -> list[Column]:
    return [F.col(quote(column)).alias(name) for column, name in zip(columns, names, strict=True)]
