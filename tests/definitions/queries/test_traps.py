"""Queries in which one name means two things: expanded they give what Spark gives, or they are refused; never other rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.definitions.queries.text import analyse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "raw.orders": "SELECT * FROM VALUES (1, 10), (2, 20), (3, 30) AS v(id, v)",
    "clean.orders": "SELECT * FROM VALUES (1, 10), (2, 25) AS v(id, v)",
    "db1.t": "SELECT * FROM VALUES (1, 10), (2, 20), (3, 30) AS v(a, b)",
    "db2.t": "SELECT * FROM VALUES (7, 1), (8, 2), (3, 9) AS v(a, b)",
    "default.t": "SELECT * FROM VALUES (1, 100), (3, 300) AS v(a, c)",
    "default.u": "SELECT * FROM VALUES (1, 7), (2, 8), (4, 9) AS v(a, x)",
    # Columns that have the name of a table and of a database.
    "default.s": (
        "SELECT a, named_struct('a', 9, 'b', 10 * a) AS t, named_struct('orders', named_struct('id', a)) AS raw"
        " FROM VALUES (1), (5) AS v(a)"
    ),
    "t.a": "SELECT * FROM VALUES (1, 5), (2, 6) AS v(b, k)",
    # Views of the definitions: written out in the queries that read them.
    "views.t": "SELECT db1.t.a, db1.t.b + 1 AS b FROM db1.t WHERE EXISTS (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a)",
    "views.both": "SELECT x.a, y.c FROM views.t x JOIN default.t y ON x.a = y.a",
}
VIEWS = tuple(name for name in TABLES if name.startswith("views."))

SAME = {
    "exists": "SELECT id FROM raw.orders WHERE EXISTS (SELECT 1 FROM clean.orders WHERE clean.orders.id = raw.orders.id)",
    "not_exists": "SELECT id FROM raw.orders WHERE NOT EXISTS (SELECT 1 FROM clean.orders WHERE clean.orders.id = raw.orders.id)",
    "scalar": "SELECT id, (SELECT max(clean.orders.v) FROM clean.orders WHERE clean.orders.id = raw.orders.id) v FROM raw.orders",
    "in": (
        "SELECT id FROM raw.orders WHERE v + 5 IN (SELECT clean.orders.v FROM clean.orders WHERE clean.orders.id = raw.orders.id)"
    ),
    "lateral": "SELECT db1.t.a, x.a AS z FROM db1.t, LATERAL (SELECT db2.t.a FROM db2.t WHERE db2.t.b = db1.t.a) x",
    "lateral_join": "SELECT db1.t.b, x.* FROM db1.t LEFT JOIN LATERAL (SELECT db2.t.a FROM db2.t WHERE db2.t.b = db1.t.a) x",
    "inner_without_database": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM db2.t WHERE t.b = db1.t.a)",
    "inner_alias": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM u AS t WHERE t.a = db1.t.a)",
    "inner_derived": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM (SELECT a FROM u) t WHERE t.a = db1.t.a)",
    "inner_cte": "WITH t AS (SELECT a FROM u) SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM t WHERE t.a = db1.t.a)",
    "cte_in_subquery": "SELECT a FROM db1.t WHERE EXISTS (WITH t AS (SELECT a FROM u) SELECT 1 FROM t WHERE t.a = db1.t.a)",
    "inner_values": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM VALUES (2), (9) AS t(a) WHERE t.a = db1.t.a)",
    "inner_function": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM range(3) AS t(a) WHERE t.a = db1.t.a)",
    "inner_lateral_view": (
        "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM u LATERAL VIEW explode(array(2, 9)) t AS a WHERE t.a = db1.t.a)"
    ),
    "names_in_full": (
        "SELECT a FROM spark_catalog.db1.t WHERE EXISTS"
        " (SELECT 1 FROM spark_catalog.db2.t WHERE spark_catalog.db2.t.b = spark_catalog.db1.t.a)"
    ),
    "names_in_full_and_short": (
        "SELECT a FROM spark_catalog.db1.t WHERE EXISTS (SELECT 1 FROM db2.t WHERE spark_catalog.db2.t.b = db1.t.a)"
    ),
    "other_case": "SELECT DB1.T.a FROM db1.t WHERE NOT EXISTS (SELECT 1 FROM DB2.T WHERE db2.T.b = Db1.t.A)",
    "backticks": "SELECT a FROM `db1`.`t` WHERE NOT EXISTS (SELECT 1 FROM db2.t WHERE `db2`.`t`.`b` = db1.`t`.a)",
    "same_name_as_database": "SELECT t.a.b FROM t.a JOIN db1.t ON t.a.b = db1.t.a",
    "one_table_read_twice": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM db1.t WHERE db1.t.a = 3)",
    "default_database": "SELECT default.t.a FROM default.t WHERE EXISTS (SELECT 1 FROM db1.t WHERE db1.t.a = default.t.a)",
    "short_name_of_the_only_one": (
        "SELECT t.a FROM db1.t WHERE NOT EXISTS (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a) AND t.b > 1"
    ),
    "nested_twice": (
        "SELECT a FROM db1.t WHERE EXISTS"
        " (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a AND EXISTS (SELECT 1 FROM u WHERE u.a = db2.t.b AND u.x = 8))"
    ),
    "nested_twice_same_name": (
        "SELECT a FROM db1.t WHERE a IN (SELECT db2.t.b FROM db2.t WHERE NOT EXISTS"
        " (SELECT 1 FROM default.t WHERE default.t.a = db2.t.b) AND db2.t.b = db1.t.a)"
    ),
    "set_operation_in_subquery": (
        "SELECT a FROM db1.t WHERE a IN (SELECT db2.t.b FROM db2.t UNION ALL SELECT default.t.a FROM default.t)"
    ),
    "three_in_one_from": (
        "SELECT db1.t.b, default.t.c, db2.t.a AS z FROM db1.t JOIN db2.t ON db1.t.a = db2.t.b JOIN t ON db1.t.a = default.t.a"
    ),
    "anti_join": "SELECT default.t.c FROM t LEFT ANTI JOIN db2.t ON default.t.a = db2.t.b",
    "semi_join": "SELECT db1.t.b FROM db1.t LEFT SEMI JOIN db2.t ON db1.t.a = db2.t.b",
    "stars": "SELECT db1.t.*, db2.t.a AS z FROM db1.t JOIN db2.t ON db1.t.a = db2.t.b",
    "star_of_both_names": "SELECT db1.t.b, struct(db2.t.*) AS z FROM db1.t JOIN db2.t ON db1.t.a = db2.t.b",
    "using": "SELECT a, db1.t.b, default.t.c FROM db1.t JOIN default.t USING (a)",
    "natural": "SELECT a, db1.t.b, default.t.c FROM db1.t NATURAL JOIN default.t",
    "struct_captures_in_subquery": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM s WHERE s.a = db1.t.a AND db1.t.b = 10)",
    "struct_of_the_table_name": "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM s WHERE db1.t.a = 2)",
    "struct_field": "SELECT s.t.b, t.a FROM s",
    "struct_in_order": "SELECT named_struct('b', -b) AS t FROM db1.t ORDER BY db1.t.b LIMIT 1",
    "struct_in_order_short": "SELECT named_struct('b', -b) AS t FROM db1.t ORDER BY t.b LIMIT 1",
    "lambda": "SELECT transform(array(named_struct('a', 5)), t -> t.a + db1.t.a) AS z FROM db1.t",
    "window": "SELECT db1.t.a, sum(db1.t.b) OVER (ORDER BY db1.t.a) AS n FROM db1.t JOIN db2.t ON db2.t.b = db1.t.a",
    "group_and_having": (
        "SELECT db1.t.a, max(db2.t.a) AS z FROM db1.t JOIN db2.t ON db2.t.b = db1.t.a GROUP BY db1.t.a HAVING max(db1.t.b) > 10"
    ),
    "cte_reads_same_name": "WITH t AS (SELECT db1.t.a + 1 AS z FROM db1.t) SELECT z FROM t JOIN db2.t ON db2.t.b = z",
    "cte_shadows": "WITH t AS (SELECT a + 1 AS a FROM t) SELECT t.a FROM t WHERE a NOT IN (SELECT db1.t.a FROM db1.t)",
    "derived_table_sees_its_own": "SELECT db1.t.a, x.b FROM db1.t JOIN (SELECT t.b FROM s) x ON x.b = db1.t.b",
    "own_alias_is_taken": "SELECT db1__t.a FROM u AS db1__t WHERE EXISTS (SELECT 1 FROM db1.t JOIN u t ON db1.t.a = db1__t.a)",
    "exists_in_on": "SELECT db1.t.a FROM u JOIN db1.t ON u.a = db1.t.a AND EXISTS (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a)",
    "joins_in_parentheses": "SELECT db1.t.a FROM (db1.t JOIN default.t ON db1.t.a = default.t.a)",
    "pivot": "SELECT * FROM (SELECT db1.t.a, db2.t.b FROM db1.t, db2.t) PIVOT (count(1) FOR b IN (1 AS one, 2 AS two))",
    "case_in_projection": "SELECT CASE WHEN EXISTS (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a) THEN 1 END AS n FROM db1.t",
    "pipe": "FROM db1.t |> WHERE EXISTS (SELECT 1 FROM db2.t WHERE db2.t.b = db1.t.a) |> SELECT db1.t.a, db1.t.b AS z",
    "table": "TABLE db1.t",
    "tables_everywhere": "(TABLE db1.t) UNION ALL TABLE db2.t |> WHERE a IN (SELECT db1.t.a FROM db1.t) |> ORDER BY b |> LIMIT 3",
    "table_of_a_view": "TABLE views.t |> EXTEND b + 1 AS z |> DROP b",
    "pipe_join": "FROM db1.t |> JOIN db2.t ON db2.t.b = db1.t.a |> SELECT db1.t.a, db2.t.a AS z",
    "hints": "SELECT /*+ BROADCAST(db2.t), BROADCAST(t) */ db1.t.a FROM db1.t JOIN db2.t ON db2.t.b = db1.t.a",
    "comments": "SELECT a FROM db1.t -- t.a\nWHERE EXISTS (SELECT 1 /* t.b */ FROM db2.t WHERE db2.t.b = db1.t.a)",
    "view_of_the_same_name": "SELECT db1.t.a FROM db1.t WHERE EXISTS (SELECT 1 FROM views.t WHERE views.t.a = db1.t.a)",
    "view_outside": "SELECT views.t.a FROM views.t WHERE NOT EXISTS (SELECT 1 FROM db1.t WHERE db1.t.b = views.t.b - 11)",
    "view_of_views": "SELECT views.both.c FROM views.both JOIN db1.t ON db1.t.a = views.both.a",
    "view_joined": "SELECT views.t.b, db1.t.b AS z FROM views.t JOIN db1.t ON views.t.a = db1.t.a",
    "all_columns_but": "SELECT * EXCEPT (db1.t.b, db2.t.a, db2.t.b) FROM db1.t JOIN db2.t ON db1.t.a = db2.t.b",
    "short_names_only": "SELECT t.c FROM db1.t JOIN default.t USING (a)",
    "unpivot": "SELECT * FROM db1.t UNPIVOT (v FOR k IN (a, b)) AS t WHERE t.v > 2",
}
"""These must give the same rows."""

REFUSED = {
    "short_name_in_one_from": "SELECT t.c FROM db1.t JOIN default.t ON db1.t.a = default.t.a",
    "short_name_of_semi_join": "SELECT t.a FROM t SEMI JOIN db1.t ON default.t.a = db1.t.a",
    "short_name_of_anti_join": "SELECT t.a FROM t ANTI JOIN db1.t ON default.t.a = db1.t.a",
    "short_name_of_three": "SELECT db1.t.a, db2.t.b, t.c FROM db1.t, db2.t, t",
    "short_name_from_inside": (
        "SELECT a FROM db1.t WHERE EXISTS (SELECT 1 FROM s WHERE s.a = t.a) AND EXISTS (SELECT 1 FROM u WHERE u.a = db1.t.a)"
    ),
    "short_name_in_order": "SELECT named_struct('b', -b) AS t FROM db1.t WHERE db1.t.a > 0 ORDER BY t.b LIMIT 1",
    "alias_named_as_database": "SELECT id FROM raw.orders WHERE EXISTS (SELECT 1 FROM s AS raw WHERE raw.orders.id = 1)",
}
"""What these mean depends on the columns of the tables, which nobody knows when a definition is read."""

READ = tuple(name for name in TABLES if name not in VIEWS)
BOUND = {TableIdentifier.parse(f"spark_catalog.{name}"): f"bound_{name.replace('.', '_')}" for name in READ}


@pytest.fixture(scope="module")
def databases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with all tables and views in databases, and the tables as the temporary views that a job binds."""
    names = sorted({name.split(".")[0] for name in TABLES} - {"default"})
    for name in names:
        spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path_factory.mktemp(name)}'")
    for name, query in TABLES.items():
        spark.sql(f"CREATE VIEW {name} AS {query}")
    for table, view in BOUND.items():
        spark.table(str(table)).createOrReplaceTempView(view)
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # tiny joins are twice as fast without
    yield spark
    spark.conf.unset("spark.sql.adaptive.enabled")
    for name in (*TABLES, *BOUND.values()):
        spark.sql(f"DROP VIEW {name}")
    for name in names:
        spark.sql(f"DROP DATABASE {name} CASCADE")


@pytest.mark.parametrize("query", SAME.values(), ids=SAME)
def test_rows_are_those_that_spark_gives(query: str, databases: SparkSession, tmp_path: Path) -> None:
    expanded, mistakes = _expand(query, tmp_path)
    assert mistakes == []
    assert _rows(
        databases, replace_tables(analyse(expanded or ""), {table: quote(view) for table, view in BOUND.items()})
    ) == _rows(databases, query)


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED)
def test_what_depends_on_columns_is_refused_where_it_stands(query: str, tmp_path: Path) -> None:
    expanded, mistakes = _expand(query, tmp_path)
    assert expanded is None
    assert mistakes
    assert all("may mean more than one table or column here; give each of them an alias" in mistake for mistake in mistakes)


def _rows(spark: SparkSession, query: str) -> list[str]:
    return sorted(map(repr, spark.sql(query).collect()))


def _expand(query: str, folder: Path) -> tuple[str | None, list[str]]:
    """The query of a table as its definition expands it, and the mistakes."""
    content = {
        "defaults": {"catalog": "spark_catalog", "database": "default"},
        "sources": [{"name": name, "format": "parquet", "path": "/nowhere"} for name in READ],
        "views": [{"name": name, "query": TABLES[name]} for name in VIEWS],
        "dynamic_tables": [{"name": "trap", "freshness": "1 day", "query": query}],
    }
    (folder / "traps.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))
    definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
    found = next(iter(definitions.tables.values()), None)
    return (found.expanded_query if found else None), [mistake.message for mistake in mistakes]
