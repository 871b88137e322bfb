"""Which tables a partition key tells apart, only where that is plain to see."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.text import origins

PLAIN = {
    "SELECT o.ds, sum(x) AS n FROM `lake`.`raw`.`o` AS o JOIN lake.raw.c AS c ON o.id = c.id GROUP BY o.ds": "=o",
    "SELECT ds, n FROM lake.raw.o WHERE n > 1": "=o",
    "SELECT o.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.id = c.id": "=o",
    "SELECT DISTINCT ds FROM lake.raw.o": "=o",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.id = c.id AND (c.ds = o.ds AND c.n > 1)": "=o c",
    "SELECT o.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON (o.ds = c.ds)": "=o c",
    "SELECT o.ds FROM lake.raw.o o LEFT ANTI JOIN lake.raw.c c USING (id, ds)": "=o c",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds JOIN lake.raw.d d ON d.ds = c.ds": "=o c",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds OR c.n > 1": "=o",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds <=> c.ds": "=o",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = upper(c.ds)": "=o",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.c c ON o.ds = c.ds JOIN lake.raw.c e ON o.id = e.id": "=o",
    "SELECT o.ds FROM lake.raw.o o, lake.raw.c c WHERE o.ds = c.ds": "=o",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM lake.raw.c": "o c",
    "SELECT 1, ds FROM lake.raw.o UNION (SELECT n, ds FROM lake.raw.c WHERE n > 1) UNION SELECT 1, ds FROM lake.raw.d": "o c d",
    "SELECT ds FROM lake.raw.o WHERE n > 1 UNION ALL SELECT ds FROM lake.raw.o WHERE n < 1": "o",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT c.ds FROM lake.raw.c c JOIN lake.raw.d d ON c.id = d.id": "o c",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT c.ds FROM lake.raw.c c JOIN lake.raw.o d ON c.id = d.id": "c",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT upper(ds) FROM lake.raw.c": "o",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT '2024-01-01'": "o",
}
HIDDEN = [
    "SELECT upper(ds) AS ds FROM lake.raw.o",
    "SELECT * FROM lake.raw.o",
    "SELECT c.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.id = c.id",
    "SELECT c.ds FROM lake.raw.o o LEFT JOIN lake.raw.c c ON o.ds = c.ds",
    "SELECT o.ds FROM lake.raw.o o RIGHT JOIN lake.raw.c c ON o.id = c.id",
    "SELECT o.ds FROM lake.raw.o o FULL JOIN lake.raw.c c ON o.ds = c.ds",
    "SELECT o.ds FROM lake.raw.o o JOIN lake.raw.o p ON o.ds = p.ds",
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
    "SELECT ds, n FROM lake.raw.o UNION ALL SELECT n, ds FROM lake.raw.o",
    "SELECT ds FROM lake.raw.o UNION ALL BY NAME SELECT ds FROM lake.raw.c",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM lake.raw.c LIMIT 3",
    "SELECT ds FROM lake.raw.o UNION ALL (SELECT ds FROM lake.raw.c LIMIT 3)",
    "SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM (SELECT * FROM lake.raw.c)",
    "WITH c AS (SELECT 1 AS ds) SELECT ds FROM lake.raw.o UNION ALL SELECT ds FROM c",
    "SELECT ds FROM lake.raw.o EXCEPT SELECT ds FROM lake.raw.c",
    "SELECT ds FROM lake.`raw.x`.o",
]


def shown(query: str) -> str:
    """The tables that are told apart by ``ds``, each by its own; ``=`` before one that the result has as it is."""
    found = origins(query, "ds")
    assert {one.column.lower() for one in found.values()} <= {"ds"}
    return " ".join(f"{'=' if one.is_itself else ''}{table.removeprefix('lake.raw.')}" for table, one in found.items())


@pytest.mark.parametrize(("query", "tables"), PLAIN.items())
def test_what_a_column_tells_apart(query: str, tables: str) -> None:
    assert shown(query) == tables


def test_columns_may_have_other_names() -> None:
    assert origins("SELECT day AS ds FROM lake.raw.o", "DS")["lake.raw.o"].column == "day"
    joined = origins("SELECT o.day AS ds FROM lake.raw.o o JOIN lake.raw.c ON c.tag = o.day", "ds")
    assert {table: one.column for table, one in joined.items()} == {"lake.raw.o": "day", "lake.raw.c": "tag"}
    united = origins("SELECT day AS ds FROM lake.raw.o UNION ALL SELECT tag FROM lake.raw.c", "ds")
    assert {table: one.column for table, one in united.items()} == {"lake.raw.o": "day", "lake.raw.c": "tag"}


@pytest.mark.parametrize("query", HIDDEN)
def test_what_is_not_plain_is_not_told(query: str) -> None:
    assert not shown(query)


def test_a_thousand_unions_are_no_trouble() -> None:
    query = " UNION ALL ".join(["SELECT ds FROM lake.raw.o"] * 1_000)
    assert shown(query) in ("o", "")
