"""What Airflow's configuration says of tables."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.dags.declared import configured_threshold
from airflow_dynamic_tables.exceptions import ConfigurationError


@pytest.mark.parametrize(
    ("option", "environment", "threshold"),
    [
        pytest.param(None, None, "30 minutes", id="nobody says anything"),
        pytest.param("PT1H", None, "1 hour", id="the option"),
        pytest.param("", "10 minutes", "10 minutes", id="the environment, as without Airflow"),
        pytest.param("1 hour", "10 minutes", "1 hour", id="the option wins"),
    ],
)
def test_the_threshold(monkeypatch: pytest.MonkeyPatch, option: str | None, environment: str | None, threshold: str) -> None:
    for name, value in (
        ("AIRFLOW__DYNAMIC_TABLES__FRESHNESS_THRESHOLD", option),
        ("DYNAMIC_TABLES_FRESHNESS_THRESHOLD", environment),
    ):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert configured_threshold().text == threshold


def test_a_threshold_that_is_none_is_told_with_the_name_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__FRESHNESS_THRESHOLD", "soon")
    with pytest.raises(ConfigurationError, match=r"^\[dynamic_tables\] freshness_threshold: 'soon' is no freshness; write"):
        configured_threshold()
