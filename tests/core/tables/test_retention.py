from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_dynamic_tables.core.tables.retention import Retention

NOW = datetime(2024, 3, 10, tzinfo=UTC)


def test_options_give_the_same_back_and_defaults_fill_in() -> None:
    retention = Retention(3, timedelta(hours=36))
    assert retention.options == {"versions_to_keep": "3", "version_max_age": "36 hours"}
    assert Retention.parse({**retention.options, "other": "x"}) == retention
    assert Retention.parse({}) == Retention() == Retention(10, timedelta(days=7))
    with pytest.raises(ValueError, match="soon"):
        Retention.parse({"version_max_age": "soon"})


@pytest.mark.parametrize(
    ("newer", "days", "kept"),
    [(0, None, True), (5, None, True), (1, 30, True), (2, 30, False), (2, 6, True), (2, 7, False), (50, 6, True)],
)
def test_a_version_goes_when_it_is_neither_new_nor_young(newer: int, days: int | None, kept: bool) -> None:
    replaced_at = None if days is None else NOW - timedelta(days=days)
    assert Retention(2, timedelta(days=7)).keeps(newer, replaced_at, NOW) is kept


def test_a_version_replaced_just_now_stays_for_those_who_read_it() -> None:
    retention = Retention(1, timedelta(seconds=1))
    assert retention.keeps(1, NOW - timedelta(minutes=59), NOW)
    assert not retention.keeps(1, NOW - timedelta(minutes=60), NOW)
