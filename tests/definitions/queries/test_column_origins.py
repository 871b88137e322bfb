"""Column lineage: the columns of tables that a column of a result derives from."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.definitions.queries.text import column_origins

COLUMNS = {
    "lake.raw.orders": ["id", "amount", "country", "ds"],
    "lake.raw.customers": ["id", "Name", "country"],
    "lake.raw.files": [],
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT o.ds, sum(o.amount) AS revenue, name FROM lake.raw.orders o JOIN customers USING (id) GROUP BY 1, 3",
            {"ds": "orders.ds", "revenue": "~orders.amount", "name": "customers.Name"},
        ),
        (
            "SELECT * FROM `lake`.`raw`.`customers`",
            {"id": "customers.id", "name": "customers.Name", "country": "customers.country"},
        ),
        (
            "WITH a AS (SELECT id, amount * 2 AS d FROM orders) SELECT id, d FROM a UNION ALL SELECT id, 1 FROM customers",
            {"id": "customers.id orders.id", "d": "~orders.amount"},
        ),
        ("WITH orders AS (SELECT name AS id FROM customers) SELECT id FROM orders", {"id": "customers.Name"}),
        ("SELECT lake.raw.orders.id FROM lake.raw.orders WHERE ds = '1'", {"id": "orders.id"}),
        ("SELECT (SELECT max(amount) FROM orders) AS m FROM customers", {"m": "~orders.amount"}),
        ("SELECT 1 AS x", {"x": ""}),
        # Of the columns of files nothing is known.
        ("SELECT x, y + 1 AS z FROM files", {"x": "files.x", "z": "~files.y"}),
        (
            "SELECT f.x, name, y, amount + z AS s FROM files f JOIN customers c ON f.id = c.id JOIN orders o ON o.id = c.id",
            {"x": "files.x", "name": "customers.Name", "y": "", "s": ""},
        ),
        ("WITH a AS (SELECT * FROM files) SELECT x, (SELECT max(id) FROM orders) AS m FROM a", {"x": "", "m": "~orders.id"}),
        ("SELECT (", {}),
    ],
)
def test_origins(query: str, expected: dict[str, str]) -> None:
    found = {
        name: " ".join(f"{'' if one.is_copy else '~'}{one.table.rpartition('.')[2]}.{one.column}" for one in origins)
        for name, origins in column_origins(query, COLUMNS).items()
    }
    assert found == expected
