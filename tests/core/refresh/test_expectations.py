"""Row counts against their bounds, and predicates as Spark reads them."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.expectations import Action, ExpectationResult, RowCount, accepted_values, not_null


@pytest.mark.parametrize(
    ("bounds", "rows", "before", "violations", "detail"),
    [
        (RowCount(min=1), 1, None, 0, "1 rows"),
        (RowCount(min=1), 0, 5, 1, "0 rows; at least 1 expected"),
        (RowCount(max=9), 9, None, 0, "9 rows"),
        (RowCount(max=9), 10, None, 1, "10 rows; at most 9 expected"),
        (RowCount(max_decrease=0.5), 50, 100, 0, "50 rows, 100 before (-50%)"),
        (RowCount(max_decrease=0.5), 49, 100, 1, "49 rows, 100 before (-51%); at least -50% expected"),
        (RowCount(max_decrease=0.5), 0, 100, 1, "0 rows, 100 before (-100%); at least -50% expected"),
        (RowCount(max_decrease=0.0), 99, 100, 1, "99 rows, 100 before (-1%); at least +0% expected"),
        (RowCount(max_increase=3.0), 400, 100, 0, "400 rows, 100 before (+300%)"),
        (RowCount(max_increase=3.0), 401, 100, 1, "401 rows, 100 before (+301%); at most +300% expected"),
        (RowCount(max_decrease=0.1, max_increase=0.1), 0, 0, 0, "0 rows"),
        (RowCount(max_decrease=0.1, max_increase=0.1), 7, 0, 0, "7 rows"),
        (RowCount(max_decrease=0.1, max_increase=0.1), 7, None, 0, "7 rows"),
        (RowCount(min=5, max_decrease=0.1), 1, 10, 1, "1 rows, 10 before (-90%); at least 5 expected; at least -10% expected"),
    ],
)
def test_a_row_count_is_within_its_bounds_or_says_which_it_breaks(
    bounds: RowCount, rows: int, before: int | None, violations: int, detail: str
) -> None:
    assert bounds.check(rows, before) == ExpectationResult("row_count", Action.QUARANTINE, violations, detail)


def test_predicates_quote_names_and_values() -> None:
    assert not_null(["id", "a`b"]) == "`id` IS NOT NULL AND `a``b` IS NOT NULL"
    assert accepted_values({"c d": ["it's", "${x}"], "e": ["1"]}) == "`c d` IN ('it\\'s', '$\\{x}') AND `e` IN ('1')"


def test_what_was_found_is_one_sentence() -> None:
    assert str(ExpectationResult("positive", "warn", 3)) == "positive: 3 rows violate it"
    assert str(ExpectationResult("positive", "drop", 3)) == "positive: 3 rows violate it and were left out"
    assert str(RowCount(name="size", min=1).check(0, None)) == "size: 0 rows; at least 1 expected"
