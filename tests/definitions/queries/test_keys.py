"""Where a partition key comes from, only where that is plain to see."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.text import origin

PLAIN = [
    "SELECT o.ds, sum(x) AS n FROM `lake`.`raw`.`o` AS o JOIN lake.raw.c AS c ON o.id = c.id GROUP BY o.ds",
    "SELECT ds, n FROM lake.raw.o WHERE n > 1",
    "SELECT o.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.id = c.id",
    "SELECT DISTINCT ds FROM lake.raw.o",
]
HIDDEN = [
    "SELECT upper(ds) AS ds FROM lake.raw.o",
    "SELECT * FROM lake.raw.o",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM lake.raw.c",
    "SELECT c.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.id = c.id",
    "SELECT o.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.id = c.id",
    "SELECT o.ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.id = c.id",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.o p ON o.id = p.id",
    "SELECT ds, lag(n) OVER (ORDER BY ds) AS n FROM lake.raw.o",
    "SELECT ds FROM lake.raw.o WHERE n > (SELECT avg(n) FROM lake.raw.o)",
    "SELECT ds, n FROM lake.raw.o ORDER BY n LIMIT 3",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY ROLLUP (ds)",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY GROUPING SETS ((ds), ())",
    "SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY ALL",
    "WITH o AS (SELECT * FROM lake.raw.o) SELECT ds FROM o",
    "SELECT ds, y FROM lake.raw.o LATERAL VIEW explode(x) AS y",
    "SELECT '1' AS ds",
    "no query",
]


@pytest.mark.parametrize("query", PLAIN)
def test_a_column_that_is_just_passed_on(query: str) -> None:
    assert origin(query, "ds") == ("lake.raw.o", "ds")


def test_a_column_may_have_another_name() -> None:
    assert origin("SELECT day AS ds FROM lake.raw.o", "DS") == ("lake.raw.o", "day")


@pytest.mark.parametrize("query", HIDDEN)
def test_what_is_not_plain_is_not_told(query: str) -> None:
    assert origin(query, "ds") is None
