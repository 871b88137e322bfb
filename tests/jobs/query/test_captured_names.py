"""The full name of an outer table in an inner SELECT, beside a struct column that is named like its database."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.definitions.queries.editing import expand, replace_tables, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Target, analyse
from tests.jobs.conftest import Plan
from tests.support.jobs import refresh

ORDERS, NOTES = TableIdentifier("lake", "sales", "orders"), TableIdentifier("lake", "crm", "notes")
CAPTURING = "sales STRUCT<orders STRUCT<a INT>>"


def _expanded(query: str) -> str:
    analysis = analyse(query)
    assert not analysis.problems
    names = {"orders": ORDERS, "notes": NOTES}
    targets = [Target(names[reference.parts[-1].text], names[reference.parts[-1].text].sql) for reference in analysis.references]
    assert not unclear_names(analysis, targets)
    return replace_tables(analyse(expand(analysis, targets)), {ORDERS: "`sales_orders_0`", NOTES: "`crm_notes_1`"})


def _sources(notes: str) -> tuple[SourceBinding, ...]:
    return (
        SourceBinding(str(ORDERS), "sales_orders_0", "parquet", "v0", (), schema="a INT"),
        SourceBinding(str(NOTES), "crm_notes_1", "parquet", "v0", (), schema=notes),
    )


@pytest.mark.parametrize(
    ("query", "notes"),
    [
        ("SELECT * FROM sales.orders WHERE EXISTS (SELECT 1 FROM crm.notes WHERE sales.orders.a = 1)", CAPTURING),
        ("SELECT * FROM sales.orders WHERE a IN (SELECT n FROM crm.notes WHERE SALES.Orders.a = n)", f"n INT, {CAPTURING}"),
        ("SELECT (SELECT max(sales.orders.a) FROM crm.notes) AS m FROM sales.orders", CAPTURING.upper()),
        ("SELECT * FROM sales.orders WHERE EXISTS (SELECT 1 FROM crm.notes WHERE sales.orders.a = 1)", "sales MAP<STRING, INT>"),
        (
            "SELECT * FROM lake.sales.orders WHERE EXISTS (SELECT 1 FROM crm.notes WHERE lake.sales.orders.a = 1)",
            "lake STRUCT<sales STRUCT<orders STRUCT<a INT>>>",
        ),
    ],
)
def test_a_column_that_would_take_the_name_of_an_outer_table_is_refused(
    spark: SparkSession, plan: Plan, query: str, notes: str
) -> None:
    with pytest.raises(ValueError, match=r"(?i)a column of lake\.crm\.notes is named (sales|lake), .*give the table an alias"):
        refresh(spark, plan(_expanded(query), *_sources(notes)))


@pytest.mark.parametrize(
    ("query", "notes"),
    [
        # Within one FROM clause the name of a table comes before a column.
        ("SELECT sales.orders.a FROM sales.orders, crm.notes", CAPTURING),
        ("SELECT o.a FROM sales.orders o WHERE EXISTS (SELECT 1 FROM crm.notes n WHERE o.a = n.sales.orders.a)", CAPTURING),
        ("SELECT * FROM sales.orders WHERE EXISTS (SELECT 1 FROM crm.notes WHERE sales.orders.a = 1)", "sales STRUCT<order INT>"),
        ("SELECT * FROM sales.orders WHERE EXISTS (SELECT 1 FROM crm.notes WHERE sales.orders.a = 1)", "n INT"),
    ],
)
def test_any_other_column_of_that_name_is_in_no_way(spark: SparkSession, plan: Plan, query: str, notes: str) -> None:
    assert refresh(spark, plan(_expanded(query), *_sources(notes))).rows == 0


def test_a_column_that_the_query_itself_names_so_is_refused_by_the_definitions() -> None:
    inner = "(SELECT named_struct('orders', named_struct('a', 1)) AS sales FROM crm.notes) x"
    for query in (
        f"SELECT * FROM sales.orders WHERE EXISTS (SELECT 1 FROM {inner} WHERE sales.orders.a = 1)",
        "SELECT named_struct('orders', named_struct('a', 1)) AS sales FROM sales.orders ORDER BY sales.orders.a",
        "SELECT 1 FROM sales.orders WHERE EXISTS (SELECT 1 FROM VALUES (1) AS v(sales) WHERE sales.orders.a = 1)",
    ):
        analysis = analyse(query)
        targets = [Target(ORDERS if reference.parts[-1].text == "orders" else NOTES, "x") for reference in analysis.references]
        assert "may mean more than one table or column" in unclear_names(analysis, targets)[0].message, query
    free = analyse("SELECT sales.orders.a AS sales, 'sales' AS t FROM sales.orders WHERE sales.orders.a > 1")
    assert not unclear_names(free, [Target(ORDERS, "x")])
