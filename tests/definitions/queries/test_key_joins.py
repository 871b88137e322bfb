"""The joins by whose keys a change of a dimension is mapped to rows of facts, and what hides them."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.key_joins import KeyJoins
from airflow_dynamic_tables.core.refresh.key_sources import Obstacle, ObstacleCode
from airflow_dynamic_tables.definitions.queries.text import key_joins

DIM, FACTS, OTHER = "lake.raw.dim", "lake.raw.facts", "lake.raw.other"
TYPES = {
    DIM: {"id": "bigint", "name": "string", "factor": "bigint", "price": "double", "padded": "char(3)"},
    FACTS: {
        "ds": "string",
        "n": "bigint",
        "id": "int",
        "other": "bigint",
        "name": "string",
        "price": "double",
        "padded": "char(3)",
    },
    OTHER: {"id": "bigint", "name": "string"},
}


def find(query: str, **options: object) -> KeyJoins | Obstacle:
    """Analyse a query in which D, F and O are the dimension, the facts, and a table without mapped partitions."""
    for short, name in (("D", DIM), ("F", FACTS), ("O", OTHER)):
        query = query.replace(f"{{{short}}}", name)
    return key_joins(query, DIM, {FACTS}, TYPES, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id", ["id=id"]),
        ("SELECT f.ds FROM {F} f LEFT JOIN {D} d ON d.id = f.id AND d.name = f.name AND f.n > d.factor", ["name=name id=id"]),
        ("SELECT f.ds FROM {F} f LEFT SEMI JOIN {D} d ON d.id = f.other", ["id=other"]),
        ("SELECT f.ds FROM {F} f LEFT ANTI JOIN {D} d ON d.id = f.other", ["id=other"]),
        ("SELECT f.ds FROM {D} d JOIN {F} f ON d.id = f.id LEFT JOIN {O} o ON o.id = d.id", ["id=id"]),
        ("SELECT f.ds FROM {D} d, {F} f WHERE d.id = f.id", ["id=id"]),
        ("SELECT ds FROM {F} LEFT JOIN {D} USING (id)", ["id=id"]),
        ("SELECT ds FROM {D} JOIN {F} USING (id, name)", ["id=id name=name"]),
        ("SELECT f.ds FROM {O} o JOIN {F} f ON f.id = o.id JOIN {D} d ON d.id = o.id AND d.id = f.other", ["id=other"]),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id JOIN {D} e ON e.id = f.other", ["id=id", "id=other"]),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id AND f.id = d.factor", ["factor=id"]),
        ("SELECT f.ds FROM {F} f JOIN (SELECT id AS k, max(name) AS m FROM {D} GROUP BY id) d ON f.id = d.k", ["id=id"]),
        ("SELECT f.ds FROM {F} f JOIN (SELECT id FROM {D} UNION ALL SELECT 1) d ON f.id = d.id", ["id=id"]),
        ("WITH d AS (SELECT * FROM {D} WHERE factor > 1) SELECT ds FROM {F} f JOIN d ON f.id = d.id", ["id=id"]),
        ("WITH f AS (SELECT ds, id AS k FROM {F}) SELECT ds FROM f JOIN {D} d ON f.k = d.id", ["id=id"]),
        ("SELECT ds FROM (SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id) x CROSS JOIN {O}", ["id=id"]),
        (
            "SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id UNION ALL SELECT f.ds FROM {F} f JOIN {D} d ON f.name = d.name",
            ["id=id", "name=name"],
        ),
    ],
)
def test_joins(query: str, keys: list[str]) -> None:
    found = find(query)
    assert isinstance(found, KeyJoins), found
    assert all(join.fact == FACTS for join in found.joins)
    assert [" ".join(f"{key.name}={column.name}" for key, column in join.columns) for join in found.joins] == keys


@pytest.mark.parametrize(
    ("query", "code", "cause"),
    [
        ("SELECT f.ds FROM {F} f CROSS JOIN {D} d", ObstacleCode.JOIN, "no condition equates a column of d with"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id <=> d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id + 1", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id OR f.n = 1", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON lower(f.name) = d.name", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.name = d.name COLLATE UTF8_LCASE", ObstacleCode.JOIN, "no condition"),
        ("SELECT d.name FROM {D} d LEFT JOIN {F} f ON f.id = d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT d.name FROM {D} d LEFT ANTI JOIN {F} f ON f.id = d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT d.name FROM {D} d LEFT JOIN {F} f USING (id)", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f LEFT JOIN {D} d LEFT JOIN {O} o ON d.id = f.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {O} o JOIN {D} d ON o.id = d.id JOIN {F} f ON f.id = o.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f RIGHT JOIN {D} d ON f.id = d.id", ObstacleCode.JOIN, "RIGHT JOIN is not analysed"),
        ("SELECT f.ds FROM {F} f FULL JOIN {D} d ON f.id = d.id", ObstacleCode.JOIN, "FULL JOIN is not analysed"),
        ("SELECT ds FROM {F} NATURAL JOIN {D}", ObstacleCode.JOIN, "NATURAL JOIN is not analysed"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.name = d.id", ObstacleCode.TYPES, "id of type bigint with name of string"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.price = d.price", ObstacleCode.TYPES, "price of type double"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.padded = d.padded", ObstacleCode.TYPES, "padded of type char(3)"),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.more = d.id", ObstacleCode.TYPES, "more of unknown"),
        ("SELECT f.ds FROM {F} f WHERE f.id IN (SELECT id FROM {D})", ObstacleCode.SUBQUERY, "a subquery outside FROM"),
        ("SELECT ds, (SELECT max(id) FROM {D}) FROM {F}", ObstacleCode.SUBQUERY, "a subquery outside FROM"),
        ("SELECT f.ds FROM {F} f JOIN {O} o ON o.id = (SELECT max(id) FROM {D})", ObstacleCode.SUBQUERY, "a subquery outside"),
        ("SELECT f.ds FROM {F} f JOIN (SELECT id FROM {D} LIMIT 2) d ON f.id = d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN (SELECT max(id) AS id FROM {D}) d ON f.id = d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM (SELECT max(id) AS id, ds FROM {F} GROUP BY ds) f JOIN {D} d ON f.id = d.id", ObstacleCode.JOIN, "no"),
        (
            "SELECT f.ds FROM (SELECT ds, id FROM {F} UNION ALL SELECT name, id FROM {O}) f JOIN {D} d ON f.id = d.id",
            ObstacleCode.JOIN,
            "no condition",
        ),
        (
            "SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id CROSS JOIN {D} e",
            ObstacleCode.JOIN,
            "no condition equates a column of e",
        ),
        ("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id UNION SELECT name FROM {D}", ObstacleCode.JOIN, "no condition"),
        ("WITH d AS (SELECT * FROM {D}) SELECT f.ds FROM {F} f JOIN d ON f.id = d.id CROSS JOIN d e", ObstacleCode.JOIN, "of e"),
        ("SELECT f.ds FROM {F} f JOIN {D} AS d (k, m) ON f.id = d.k", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f JOIN {D} TABLESAMPLE (5 ROWS) d ON f.id = d.id", ObstacleCode.JOIN, "no condition"),
        ("SELECT f.ds FROM {F} f, LATERAL (SELECT * FROM {D} d WHERE d.id = f.id)", ObstacleCode.JOIN, "no condition"),
        ("SELECT ds FROM {F} |> JOIN {D} USING (id)", ObstacleCode.FORM, "the pipe operator"),
    ],
)
def test_obstacles(query: str, code: ObstacleCode, cause: str) -> None:
    found = find(query)
    assert isinstance(found, Obstacle), found
    assert found.code is code
    assert cause in found.cause


def test_the_place_of_an_obstacle() -> None:
    query = f"SELECT f.ds FROM {FACTS} f\nCROSS JOIN {DIM} d"
    found = find(query)
    assert isinstance(found, Obstacle)
    assert query[found.offset :].startswith(DIM)


def test_settings_that_change_the_meaning() -> None:
    found = find("SELECT f.ds FROM {F} f JOIN {D} d ON f.id = d.id", settings={"spark.sql.caseSensitive": "true"})
    assert isinstance(found, Obstacle)
    assert found.code is ObstacleCode.SETTING


@pytest.mark.parametrize(
    ("query", "unused"),
    [
        ("SELECT f.ds, D.Factor FROM {F} f JOIN {D} d ON f.id = d.id", {"name", "price", "padded"}),
        ("SELECT f.ds, count(*) FROM {F} f JOIN {D} d ON f.id = d.id GROUP BY f.ds", {"factor", "name", "price", "padded"}),
        ("SELECT ds, factor FROM {F} JOIN {D} USING (id) ORDER BY price", {"name", "padded"}),
    ],
)
def test_columns_that_are_not_used(query: str, unused: set[str]) -> None:
    found = find(query)
    assert isinstance(found, KeyJoins)
    assert found.columns is not None
    assert TYPES[DIM].keys() - found.columns == unused


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f.ds, d.* FROM {F} f JOIN {D} d ON f.id = d.id",
        "SELECT * FROM {F} f JOIN {D} d ON f.id = d.id",
        "SELECT f.ds, count(DISTINCT d.*) FROM {F} f JOIN {D} d ON f.id = d.id GROUP BY f.ds",
        "SELECT f.ds, to_json(struct(d.*)) FROM {F} f JOIN {D} d ON f.id = d.id",
    ],
)
def test_all_columns_are_used(query: str) -> None:
    found = find(query)
    assert isinstance(found, KeyJoins)
    assert found.columns is None
