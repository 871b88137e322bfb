"""The link to Spark leads to a page that is there: Spark's own while it runs, YARN's, the history server's."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.operators.links import SparkPages

LOCAL = "Spark application local-1 of local[*], shown at http://worker:4040"
ON_YARN = "26/11/22 07:16:45 INFO Client: \t tracking URL: http://rm:8088/proxy/application_1_2/"
YARN = "http://rm:8088/proxy/application_1_2/"
HISTORY = "https://history.example/spark"


@pytest.mark.parametrize(
    ("lines", "live", "later", "with_server"),
    [
        ([LOCAL], "http://worker:4040", "", f"{HISTORY}/history/local-1/"),
        ([ON_YARN, LOCAL], YARN, YARN, f"{HISTORY}/history/local-1/"),
        ([ON_YARN], YARN, YARN, YARN),
        (["Spark application local-1 of local[*]"], "", "", f"{HISTORY}/history/local-1/"),
        (["SELECT 'Spark application', 'tracking URL: none'", "x Spark application a of b, shown at http://c"], "", "", ""),
    ],
)
def test_the_output_of_spark_says_where_it_is_shown(
    lines: list[str], live: str, later: str, with_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = SparkPages()
    changes = [pages.notice(line) for line in (*lines, *lines)]
    assert sum(changes) == (1 if live else 0)
    assert (pages.while_running(), pages.afterwards()) == (live, later)
    monkeypatch.setenv("AIRFLOW__DYNAMIC_TABLES__SPARK_HISTORY_SERVER", f"{HISTORY}/")
    assert pages.afterwards() == with_server
