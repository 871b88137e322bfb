"""Which conditions of a query filter each of its tables, and which changes they exclude."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.conditions import ColumnRange, SomeRows
from airflow_dynamic_tables.definitions.queries.text import source_filters

_COLUMNS = {"ds": "string", "id": "int", "n": "decimal(12,2)", "day": "date", "x": "double", "at": "timestamp", "is_a": "boolean"}
TYPES = {f"lake.raw.{table}": _COLUMNS for table in "oc"}

FILTERS = {
    "SELECT ds FROM lake.raw.o WHERE ds > 'a' AND (id = 1 OR n IS NULL)": "o: ds > 'a' & id = 1 OR n IS NULL",
    "SELECT ds FROM lake.raw.o": "o:",
    "SELECT ds FROM lake.raw.o WHERE id + 1 > 3 AND unknown = 2 AND rand() < 0.5": "o:",
    "SELECT max(n) OVER (ORDER BY ds) AS n FROM lake.raw.o WHERE ds > 'a' LIMIT 3": "o: ds > 'a'",
    "SELECT ds, count(*) AS n FROM lake.raw.o GROUP BY ds HAVING n > 3": "o:",
    # pushed into queries of FROM
    "SELECT * FROM (SELECT ds AS a, id FROM lake.raw.o WHERE id > 1) WHERE a > 'a'": "o: a > 'a' & id > 1",
    "WITH q AS (SELECT ds, sum(n) AS n FROM lake.raw.o GROUP BY ds) SELECT * FROM q WHERE ds > 'a' AND n > 2": "o: ds > 'a'",
    "WITH q AS (SELECT * FROM lake.raw.o) SELECT 1 FROM q WHERE id = 1 UNION ALL SELECT 1 FROM q WHERE id = 2": (
        "o: id = 1 | id = 2"
    ),
    "SELECT * FROM (SELECT ds FROM lake.raw.o UNION SELECT ds FROM lake.raw.c) WHERE ds > 'a'": "o: ds > 'a'; c: ds > 'a'",
    "SELECT * FROM (SELECT ds AS k FROM lake.raw.o UNION SELECT day FROM lake.raw.c) WHERE k > 'a'": "o:; c:",
    "SELECT * FROM (SELECT * FROM lake.raw.o LIMIT 3) WHERE ds > 'a'": "o:",
    "SELECT * FROM (SELECT ds, id, lag(n) OVER (PARTITION BY ds ORDER BY id) AS n FROM lake.raw.o) WHERE ds > 'a' AND id > 1": (
        "o: ds > 'a'"
    ),
    "SELECT * FROM (SELECT ds, count(*) AS n FROM lake.raw.o GROUP BY ROLLUP (ds)) WHERE ds > 'a'": "o:",
    "SELECT * FROM lake.raw.o TABLESAMPLE (3 ROWS) WHERE ds > 'a'": "o:",
    # joins
    "SELECT 1 FROM lake.raw.o JOIN lake.raw.c ON o.id = c.id AND c.n > 1 WHERE o.ds > 'a'": "o: o.ds > 'a'; c: c.n > 1",
    "SELECT 1 FROM lake.raw.o JOIN lake.raw.c ON o.ds = c.ds WHERE o.ds > 'a'": "o: o.ds > 'a'; c: o.ds > 'a'",
    "SELECT 1 FROM lake.raw.o LEFT JOIN lake.raw.c ON o.id = c.id AND c.n > 1 AND o.n > 1 WHERE c.ds > 'a' AND o.x > 1": (
        "o: o.x > 1; c: c.n > 1"
    ),
    "SELECT 1 FROM lake.raw.o LEFT JOIN lake.raw.c ON o.id = c.id WHERE c.id IS NULL": "o:; c:",
    "SELECT 1 FROM lake.raw.o LEFT SEMI JOIN lake.raw.c ON o.id = c.id AND c.n > 1 AND o.n > 2": "o: o.n > 2; c: c.n > 1",
    "SELECT 1 FROM lake.raw.o LEFT ANTI JOIN lake.raw.c ON o.id = c.id AND c.n > 1 AND o.n > 2": "o:; c: c.n > 1",
    "SELECT 1 FROM lake.raw.o RIGHT JOIN lake.raw.c ON o.id = c.id AND c.n > 1 AND o.n > 2 WHERE o.x > 1 AND c.x > 2": (
        "o: o.n > 2; c: c.x > 2"
    ),
    "SELECT 1 FROM lake.raw.o FULL JOIN lake.raw.c ON o.id = c.id AND c.n > 1 AND o.n > 2 WHERE o.x > 1": "o:; c:",
    "SELECT 1 FROM lake.raw.o NATURAL JOIN lake.raw.c WHERE o.x > 1": "o:; c:",
    # each reading has its own
    "SELECT ds FROM lake.raw.o WHERE id > 1 AND n < (SELECT avg(n) FROM lake.raw.o)": "o: id > 1 | ",
    "SELECT ds FROM lake.raw.o WHERE id > 1 AND EXISTS (SELECT 1 FROM lake.raw.o p WHERE p.id = o.id AND p.n > 1)": (
        "o: id > 1 | p.n > 1"
    ),
    "SELECT ds FROM lake.raw.o WHERE id > 1 AND EXISTS (SELECT 1 FROM lake.raw.c WHERE o.n > 1)": "o: id > 1; c:",
    "SELECT ds FROM LAKE.raw.o WHERE id > 1 UNION ALL SELECT ds FROM lake.raw.o": "LAKE.raw.o:; o:",
    "SELECT ds FROM lake.raw.o |> WHERE ds > 'a'": "",
    "SELECT ((": "",
}


@pytest.mark.parametrize(("query", "expected"), FILTERS.items())
def test_filters_of_a_query(query: str, expected: str) -> None:
    found = source_filters(query, TYPES)
    texts = {
        name.removeprefix("lake.raw."): " | ".join(" & ".join(sorted(each.text for each in one)) for one in own.readings)
        for name, own in found.items()
    }
    wanted = dict(each.split(":", 1) for each in filter(None, expected.split("; ")))
    assert {name: sorted(text.split("|")) for name, text in texts.items()} == {
        name: sorted(text.removeprefix(" ").split("|")) for name, text in wanted.items()
    }


def test_settings_that_may_change_the_meaning() -> None:
    query = "SELECT ds FROM lake.raw.o WHERE ds > 'a'"
    assert not source_filters(query, TYPES, {"spark.sql.caseSensitive": "true"})
    assert source_filters(query, TYPES, {"spark.sql.ansi.enabled": "false"})


EXCLUDED = [
    ("ds > 'b'", {"ds": "b"}, {}, True),
    ("ds > 'b'", {"ds": "ba"}, {}, False),
    ("ds <> 'b'", {"ds": "b"}, {}, True),
    ("ds > 'b'", {"ds": NULL_PARTITION}, {}, False),  # Iceberg has such a text for a key that a table no longer has
    ("ds IS NULL", {"ds": ""}, {}, False),  # null in Delta
    ("ds > DATE '2024-01-05'", {"ds": "2024-01-05"}, {}, True),
    ("ds > DATE '2024-01-05'", {"ds": "2024-1-05"}, {}, False),
    ("ds = 5", {"ds": "4"}, {}, False),  # Spark converts the text
    ("substr(ds, 1, 7) = '2024-02'", {"ds": "2024-01-05"}, {}, True),
    ("day >= '2024-01-05'", {"day": "2024-01-04"}, {}, True),
    ("day >= 'x'", {"day": "2024-01-04"}, {}, False),
    ("year(day) = 2024", {"day": "2023-12-31"}, {}, True),
    ("id IN (1, 2)", {"id": "3"}, {}, True),
    ("id NOT IN (1, 2)", {"id": "2"}, {}, True),
    ("NOT (id > 2 AND id < 9)", {"id": "5"}, {}, True),
    ("id > 2", {}, {"id": ColumnRange(upper=2)}, True),
    ("id > 2", {}, {"id": ColumnRange(lower=0)}, False),
    ("id > 2.5", {}, {"id": ColumnRange(1, 2)}, True),
    ("id = 2", {}, {"id": ColumnRange(1, 3)}, False),
    ("id <> 2", {}, {"id": ColumnRange(2, 2)}, True),
    ("id <> 2", {}, {"id": ColumnRange(2, 3)}, False),
    ("id IS NULL", {}, {"id": ColumnRange(may_have_nulls=False)}, True),
    ("id < 2 OR id IS NULL", {}, {"id": ColumnRange(3, 4)}, False),
    ("id > 2", {}, {"id": ColumnRange(may_have_values=False)}, True),
    ("n = 0.1", {}, {"n": ColumnRange(Decimal("0.11"), Decimal("0.2"))}, True),
    ("x = 0.1", {}, {"x": ColumnRange(0.1, 0.1)}, False),
    ("x < 0.1", {}, {"x": ColumnRange(0.1, None)}, True),
    ("at > '2024-01-01'", {}, {"at": ColumnRange(date(2023, 1, 1), date(2023, 1, 1))}, False),
    ("is_a = 1", {}, {"is_a": ColumnRange(False, False)}, False),
    ("ds > DATE '2024-01-05'", {}, {"ds": ColumnRange("2024-01-01", "2024-01-02")}, False),  # other spellings are in between
    ("ds > 'b' OR rand() < 1", {"ds": "a"}, {}, False),
]


@pytest.mark.parametrize(("condition", "partition", "ranges", "expected"), EXCLUDED)
def test_excluded_rows(condition: str, partition: dict[str, str], ranges: dict[str, ColumnRange], expected: bool) -> None:
    filters = source_filters(f"SELECT n FROM lake.raw.o WHERE {condition}", TYPES)["lake.raw.o"]
    assert (filters.excluding(SomeRows(partition, "UTC", ranges)) is not None) is expected


def test_readings_that_are_many_have_no_filters() -> None:
    doubled = ", ".join(
        f"t{n} AS (SELECT ds, id FROM t{n - 1} WHERE id > {n} UNION ALL SELECT ds, id FROM t{n - 1} WHERE id < {n})"
        for n in range(1, 30)
    )
    assert not source_filters(f"WITH t0 AS (SELECT * FROM lake.raw.o), {doubled} SELECT ds FROM t29", TYPES)
