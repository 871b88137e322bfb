"""Text that repeats one construct takes work that grows as the text does, whatever the construct."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.queries import dialect
from airflow_dynamic_tables.definitions.queries.text import analyse, lineage, same_query, variation
from tests.support.fuzzing.growing import QUERIES, calls_of

CORPUS = Path(__file__).parents[1] / "definitions" / "queries" / "corpus"

SHORT, LONG = 12, 36


def _work(query: str) -> int:
    """Everything that is asked of the text of a query."""

    def work() -> None:
        analyse(query)
        lineage(query, "x", {})
        same_query(query, query + " ")
        variation(query)

    return calls_of(work)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in QUERIES.items()])
def test_work_grows_as_the_query_does(make: Callable[[int], str]) -> None:
    _work(make(2))  # imports and tables that are made once
    short, long = _work(make(SHORT)), _work(make(LONG))
    assert long <= 6 * short, f"three times the text took {long / short:.1f} times the work: {make(SHORT)}"


def test_no_query_of_sparks_own_tests_comes_near_the_limit_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tenth of the steps, each of them is read as with all."""
    queries = [query for file in sorted(CORPUS.glob("*.sql")) for query in re.split(r";\n", file.read_text())]
    before = [analyse(query) for query in queries]
    monkeypatch.setattr(dialect, "STEPS_OF_SHORT_TEXTS", 0)
    monkeypatch.setattr(dialect, "STEPS_PER_TOKEN", dialect.STEPS_PER_TOKEN // 10)
    assert len(queries) > 1_000
    assert [analyse(query) for query in queries] == before
