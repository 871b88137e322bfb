"""Which queries may give other rows of the same sources: whatever is not known not to."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.text import variation

STEADY = [
    "SELECT o.ds, c.country, sum(o.amount) FROM orders o JOIN customers c USING (id) GROUP BY o.ds, c.country",
    "WITH a(x) AS (SELECT 1) SELECT count(*) FROM a WHERE x IN (1, 2) AND EXISTS (SELECT 1)",
    "SELECT /*+ broadcast(t) */ CAST(a AS DECIMAL(10, 2)), m['k'], extract(YEAR FROM d), trim(BOTH ' ' FROM s) FROM t",
    "SELECT transform(xs, (x, i) -> x + i), percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FILTER (WHERE (x > 1)) FROM t",
    "SELECT row_number() OVER (PARTITION BY (a) ORDER BY (b) ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "FROM t |> WHERE (a > 1) |> SELECT a",
    "SELECT * EXCEPT (a) FROM t PIVOT (sum(a) FOR b IN ('x'))",
    "SELECT 'rand()', -- now()\n 1 /* uuid() */ FROM t",
    "SELECT unix_timestamp(ts), u.user FROM t u",
    "SELECT a FROM t LIMIT 3",
    "SELECT first(a), DATE '2024-01-01', 'now and then', '12 rue' FROM t",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), ())",
    "SELECT c FROM t LATERAL VIEW explode(xs) AS c",
]


@pytest.mark.parametrize("query", STEADY)
def test_what_depends_on_its_rows_alone(query: str) -> None:
    assert variation(query) is None


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT rand() FROM t", "rand()"),
        ("SELECT `RAND` (1) FROM t", "rand()"),
        ("SELECT * FROM t WHERE a > (SELECT max(uuid()) FROM u)", "uuid()"),
        ("SELECT now()", "now()"),
        ("SELECT a FROM t WHERE d = current_date", "CURRENT_DATE"),
        ("SELECT `current_timestamp`", "CURRENT_TIMESTAMP"),
        ("SELECT user FROM t", "USER"),
        ("SELECT unix_timestamp()", "unix_timestamp()"),
        ("SELECT monotonically_increasing_id(), input_file_name() FROM t", "monotonically_increasing_id()"),
        ("SELECT aes_encrypt(a, 'key') FROM t", "aes_encrypt()"),
        ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT CAST(' Today UTC' AS DATE)", "Today"),
        ('SELECT TIMESTAMP "now"', "now"),
        ("SELECT TIMESTAMP '12:30'", "12:30"),
        ("SELECT lake.fn.abs(a) FROM t", "abs() of a catalog"),
        ("SELECT `lake`.`fn`.`my fn`(a) FROM t", "my fn() of a catalog"),
        ("SELECT `my fn`(a) FROM t", "my fn()"),
        ("SELECT ai_query(a) FROM t", "ai_query()"),
        ("SELECT java_method('java.lang.Math', 'random')", "java_method()"),
        ("SELECT 'never closed", "cannot be read"),
    ],
)
def test_what_another_run_may_give_anew(query: str, what: str) -> None:
    assert what in (variation(query) or "")


def test_conditions_count_too() -> None:
    assert variation("SELECT 1 AS x", ["x > 0"]) is None
    assert "now()" in (variation("SELECT 1 AS x", ["x > 0", "ts < now()"]) or "")


def test_a_function_may_be_declared_deterministic() -> None:
    assert variation("SELECT `sales_Net_0`(a) FROM t", steady=["sales_net_0"]) is None
    assert "other()" in (variation("SELECT sales_net_0(other(a)) FROM t", steady=["sales_net_0"]) or "")
    assert "net()" in (variation("SELECT lake.sales.net(a) FROM t", steady=["net"]) or ""), "another function of that name"
