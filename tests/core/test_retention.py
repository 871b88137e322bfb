from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Retention

NOW = datetime(2024, 3, 10, tzinfo=UTC)


def test_options_give_the_same_back_and_defaults_fill_in() -> None:
    retention = Retention(3, timedelta(hours=36))
    assert retention.options == {"versions_to_keep": "3", "version_max_age": "36 hours"}
    assert Retention.parse({**retention.options, "other": "x"}) == retention
    assert Retention.parse({"versions_to_keep": "10"}) == Retention() == Retention(10, timedelta(days=7))
    assert (Retention.parse({}), DEFAULT_RETENTION.options) == (DEFAULT_RETENTION, {})
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


def ages_kept(made: Sequence[datetime]) -> list[timedelta]:
    """How old versions are that are kept, of those that were made at these times, newest first."""
    kept, spans = [], set()
    for newer, committed_at in enumerate(made):
        replaced_at = made[newer - 1] if newer else None
        span = None if replaced_at is None else DEFAULT_RETENTION.span(committed_at, replaced_at, NOW)
        if DEFAULT_RETENTION.keeps(newer, replaced_at, NOW):
            kept.append(NOW - committed_at)
        elif span is not None and span not in spans:
            spans.add(span)
            kept.append(NOW - committed_at)
    return kept


def test_a_table_that_says_nothing_keeps_fewer_the_older_they_are() -> None:
    """A refresh a minute for a month."""
    kept = ages_kept([NOW - timedelta(minutes=minutes) for minutes in range(30 * 24 * 60)])
    assert len([age for age in kept if age <= timedelta(hours=1)]) == 61
    assert len([age for age in kept if timedelta(hours=1) < age <= timedelta(days=1)]) in (23, 24)
    assert len([age for age in kept if age > timedelta(days=1)]) in (6, 7)
    assert max(kept) <= timedelta(days=7)
    assert abs(len(kept) - DEFAULT_RETENTION.versions_kept(timedelta(minutes=1))) <= 1


def test_however_often_it_is_refreshed_it_keeps_a_hundred() -> None:
    """A commit every two seconds for two days: ten, and one of each minute of the last hour, of each hour, of each day."""
    kept = ages_kept([NOW - timedelta(seconds=2 * number + 1) for number in range(2 * 24 * 60 * 30)])
    assert kept[:10] == [timedelta(seconds=2 * number + 1) for number in range(10)]
    young = [age for age in kept if age <= timedelta(hours=1)]
    assert len(young) == 70
    assert max(later - age for age, later in pairwise(young[10:])) == timedelta(minutes=1)
    assert len(kept) <= DEFAULT_RETENTION.versions_kept(timedelta(seconds=2))


@pytest.mark.parametrize(
    ("retention", "period", "versions"),
    [
        (Retention(10, timedelta(days=7)), timedelta(minutes=1), 10_080),
        (Retention(10, timedelta(days=7)), timedelta(days=1), 10),
        (Retention(5_000, timedelta(hours=1)), timedelta(days=1), 5_000),
        (DEFAULT_RETENTION, timedelta(minutes=1), 91),
        (DEFAULT_RETENTION, timedelta(seconds=1), 101),
    ],
)
def test_how_many_versions_a_table_will_keep_is_known_before(retention: Retention, period: timedelta, versions: int) -> None:
    assert retention.versions_kept(period) == versions


def test_a_rare_refresh_keeps_ten_versions_however_old() -> None:
    assert DEFAULT_RETENTION.keeps(9, NOW - timedelta(days=300), NOW)
    assert not DEFAULT_RETENTION.keeps(10, NOW - timedelta(days=300), NOW)
    assert DEFAULT_RETENTION.span(NOW - timedelta(days=301), NOW - timedelta(days=300), NOW) is None
