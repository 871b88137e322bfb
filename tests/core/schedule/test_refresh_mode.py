"""Refresh mode: the worked examples of FLIP-435 and of Flink's own tests, and where this package differs on purpose."""

import pytest

from airflow_dynamic_tables.core.cron import cron_for
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode, decide

EXAMPLES = [
    ("30 seconds", "AUTO", "CONTINUOUS", "30 seconds"),
    ("30 days", "CONTINUOUS", "CONTINUOUS", "30 days"),
    ("1 day", "AUTO", "FULL", "1 day"),
    ("30 seconds", "FULL", "FULL", "30 seconds"),
    (None, "FULL", "FULL", "1 hour"),
    (None, "AUTO", "CONTINUOUS", "3 minutes"),
    (None, "CONTINUOUS", "CONTINUOUS", "3 minutes"),
    (None, "INCREMENTAL", "INCREMENTAL", "1 hour"),
    ("1 hour", "CONTINUOUS", "CONTINUOUS", "1 hour"),
    ("10 minutes", "FULL", "FULL", "10 minutes"),
    ("10 minutes", "INCREMENTAL", "INCREMENTAL", "10 minutes"),
    ("29 minutes", "AUTO", "CONTINUOUS", "29 minutes"),
    ("30 minutes", "AUTO", "FULL", "30 minutes"),
    ("1799 seconds", "AUTO", "CONTINUOUS", "1799 seconds"),
]


@pytest.mark.parametrize(("freshness", "declared", "mode", "actual"), EXAMPLES)
def test_examples(freshness: str | None, declared: str, mode: str, actual: str) -> None:
    decision = decide(RefreshMode(declared), Freshness.parse(freshness) if freshness else None)
    assert (decision.mode, decision.freshness.text) == (mode, actual)


@pytest.mark.parametrize("text", ["45 minutes", "2 days"])
def test_auto_never_falls_back_to_continuous(text: str) -> None:
    decision = decide(RefreshMode.AUTO, Freshness.parse(text))
    assert decision.mode is RefreshMode.FULL
    with pytest.raises(ValueError, match="no cron schedule"):
        cron_for(decision.freshness)


@pytest.mark.parametrize("text", ["60 minutes", "24 hours", "1 week"])
def test_flink_refuses_what_is_normalised_here(text: str) -> None:
    decision = decide(RefreshMode.AUTO, Freshness.parse(text))
    assert decision.mode is RefreshMode.FULL
    assert cron_for(decision.freshness)


def test_a_lower_threshold_makes_the_default_freshness_full() -> None:
    decision = decide(RefreshMode.AUTO, None, threshold=Freshness.parse("2 minutes"))
    assert (decision.mode, decision.freshness.text) == (RefreshMode.FULL, "3 minutes")


REASONS = [
    ("1 day", "FULL", "refresh mode FULL is declared"),
    (None, "FULL", "refresh mode FULL is declared, with the default freshness of 1 hour as none is declared"),
    ("30 minutes", "AUTO", "freshness 30 minutes is not below the threshold of 30 minutes"),
    ("1 minute", "AUTO", "freshness 1 minute is below the threshold of 30 minutes"),
    (None, "AUTO", "freshness 3 minutes (the default, as none is declared) is below the threshold of 30 minutes"),
]


@pytest.mark.parametrize(("freshness", "declared", "reason"), REASONS)
def test_the_reason_is_a_sentence_for_a_person(freshness: str | None, declared: str, reason: str) -> None:
    assert decide(RefreshMode(declared), Freshness.parse(freshness) if freshness else None).reason == reason
