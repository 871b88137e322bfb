"""What Spark's own parser makes of queries: where there is one, it decides what is SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_dynamic_tables.clients.spark_parser import Refusal
from airflow_dynamic_tables.definitions.queries.text import Analysis, Problem

_ADVICE = "Spark can parse this query, but the tables it reads cannot be told; write this part another way"


def judge(query: str, analysis: Analysis, ask: Callable[[], Refusal | None]) -> Analysis:
    """The analysis with the problems that Spark has with the query in the place of those of our own parser.

    :param ask: asks Spark. It is not asked about a query that has other problems, because these say more.
    """
    if any(not problem.unread for problem in analysis.problems):
        return analysis
    refusal = ask()
    if refusal is not None:
        return Analysis(analysis.text, problems=(_problem(query, refusal, analysis),))
    return replace(analysis, problems=tuple(map(_not_understood, analysis.problems)))


def _problem(query: str, refusal: Refusal, analysis: Analysis) -> Problem:
    """What Spark says; where Spark names no place, at that where our own parser gave up."""
    message = f"bad SQL: Spark cannot parse this: {refusal.message}"
    if refusal.place is None:
        return Problem(analysis.problems[0].offset if analysis.problems else 0, message)
    line, column = refusal.place
    start = sum(len(before) + 1 for before in query.split("\n")[:line])
    return Problem(min(start + column, len(query)), message)


def _not_understood(problem: Problem) -> Problem:
    return Problem(problem.offset, f"{_ADVICE} ({problem.message.removeprefix('bad SQL: ')})")
