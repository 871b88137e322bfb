"""Every mistake of a test is told at its place, before Spark is started; what is left in doubt is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import find_files, load_sound_definitions
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.query_test_reading import load_query_tests
from airflow_dynamic_tables.definitions.query_test_rows import QueryTest

DEFINITIONS = """\
defaults: {catalog: lake, database: sales, timezone: Europe/Berlin}
sources:
  - {name: raw.orders, format: parquet, path: /data/orders, partitioned_by: [ds],
     schema: "id BIGINT NOT NULL, amount DECIMAL(10,2), tags ARRAY<STRING>, at TIMESTAMP"}
  - {name: raw.customers, format: parquet, path: /data/customers}
  - {name: raw.odd, format: parquet, path: /data/odd, schema: "a STRING COLLATE UNICODE"}
views:
  - {name: big, query: SELECT * FROM raw.orders WHERE amount > 100}
dynamic_tables:
  - name: revenue
    freshness: 1 day
    partitioned_by: [ds]
    options: {partition.fields.ds.date-formatter: yyyy-MM-dd}
    query: SELECT ds, sum(amount) AS revenue FROM raw.orders GROUP BY ds
  - {name: joined, freshness: 1 day, query: "SELECT c.*, b.amount FROM big b JOIN raw.customers c ON b.id = c.id"}
  - {name: total, freshness: 1 day, query: SELECT sum(revenue) AS revenue FROM revenue}
  - {name: strange, freshness: 1 day, query: SELECT a FROM raw.odd}
tests:
"""

_WORD = re.compile(r"[\w.'+-]+|.")


def load(folder: Path, tests: str) -> tuple[tuple[QueryTest, ...], list[str]]:
    """The tests of a file, and its mistakes, each with the word that stands at its place."""
    file = folder / "sales.yaml"
    file.write_text(DEFINITIONS + tests)
    cache = Cache(None)
    definitions, broken = load_sound_definitions(folder, cache=cache)
    assert broken == ()
    texts = {each: each.read_text() for each in find_files(folder).files}
    read, mistakes = load_query_tests(texts, definitions, broken, analyse)
    assert {mistake.path for mistake in mistakes} <= {file}
    lines = (DEFINITIONS + tests).splitlines()
    words = [_WORD.match(lines[mistake.line - 1], mistake.column - 1) for mistake in mistakes]
    return read, [f"{word[0]} | {mistake.message}" for word, mistake in zip(words, mistakes, strict=True)]


ORDERS = "{raw.orders: {rows: [{id: 1}]}}"
NOTHING = "{rows: []}"


def customers(given: str) -> str:
    """A test whose customers, whose types nobody declares, are given."""
    orders = "raw.orders: {rows: []}"
    return f"- table: joined\n  name: t\n  given:\n    {orders}\n    raw.customers: {given}\n  expect: {NOTHING}\n"


MISTAKES = {
    "no list": ("  table: revenue\n", ["table | 'tests' must be a list; start each entry with '- table:'"]),
    "a key too many": (
        f"- {{table: revenue, name: t, giv: {ORDERS}, expect: {NOTHING}}}",
        ["giv | unknown key 'giv'; did you mean 'given'?"],
    ),
    "nothing expected": (f"- {{table: revenue, name: t, given: {ORDERS}}}", ["{ | 'expect' is missing"]),
    "two ways": (
        f"- {{table: revenue, name: t, given: {ORDERS}, expect: {{rows: [], sql: SELECT 1}}}}",
        ["{ | rows are given in one way: as 'rows', 'csv' or 'sql'"],
    ),
    "an unknown table": (
        f"- {{table: revenu, name: t, given: {ORDERS}, expect: {NOTHING}}}",
        ["revenu | there is no dynamic table 'revenu'; did you mean 'revenue'?"],
    ),
    "an unknown source": (
        f"- {{table: revenue, name: t, given: {{raw.order: {NOTHING}, raw.orders: {NOTHING}}}, expect: {NOTHING}}}",
        ["raw.order | the query of lake.sales.revenue does not read 'raw.order'; did you mean 'raw.orders'?"],
    ),
    "a source that is not given": (
        f"- {{table: revenue, name: t, expect: {NOTHING}}}",
        ["revenue | the query reads lake.raw.orders, too; give the rows, 'rows: []' for none"],
    ),
    "a view, which is written out": (
        "- {table: joined, name: t, given: {big: {rows: []}, raw.customers: {columns: {id: INT}, rows: []}}, expect: {rows: []}}",
        [
            "{ | the query reads lake.raw.orders, too; give the rows, 'rows: []' for none",
            "big | the query of lake.sales.joined does not read 'big'; it reads lake.raw.orders, lake.raw.customers",
        ],
    ),
    "a source twice": (
        f"- {{table: revenue, name: t, given: {{orders: {NOTHING}, raw.orders: {NOTHING}}}, expect: {NOTHING}}}",
        ["raw.orders | the rows of lake.raw.orders are given twice"],
    ),
    "an unknown column": (
        f"- {{table: revenue, name: t, given: {{orders: {{rows: [{{id: 1, amont: 1}}]}}}}, expect: {NOTHING}}}",
        ["amont | lake.raw.orders has no column 'amont'; did you mean 'amount'?"],
    ),
    "an unreadable value": (
        f"- {{table: revenue, name: t, given: {{orders: {{rows: [{{id: 1, amount: 1.005}}]}}}}, expect: {NOTHING}}}",
        ["1.005 | 'amount': 1.005 has more than the 2 digits that decimal(10,2) has behind the point"],
    ),
    "a value in an array": (
        f"- {{table: revenue, name: t, given: {{orders: {{rows: [{{id: 1, tags: a}}]}}}}, expect: {NOTHING}}}",
        ["a | 'tags': 'a' is no array<string>; write a list"],
    ),
    "a column that is not null": (
        f"- {{table: revenue, name: t, given: {{orders: {{rows: [{{amount: 1}}]}}}}, expect: {NOTHING}}}",
        ["{ | 'id': it is NOT NULL"],
    ),
    "a time that is there twice": (
        f"- {{table: revenue, name: t, given: {{orders: {{rows: [{{id: 1, at: 2024-10-27 02:30:00}}]}}}}, expect: {NOTHING}}}",
        [
            "2024-10-27 | 'at': 2024-10-27 02:30:00 is there twice in Europe/Berlin, where clocks are changed; write an offset",
        ],
    ),
    "another type than declared": (
        f"- {{table: revenue, name: t, given: {{orders: {{columns: {{id: INT}}, rows: []}}}}, expect: {NOTHING}}}",
        ["INT | 'id' is declared as bigint, so it cannot be INT here; take it away"],
    ),
    "a schema that only Spark reads": (
        f"- {{table: strange, name: t, given: {{odd: {NOTHING}}}, expect: {NOTHING}}}",
        [
            "odd | the schema of this source cannot be used in tests: Type struct<a STRING COLLATE UNICODE> has 'COLLATE'",
        ],
    ),
    "no type": (
        customers("{columns: {id: INTT}, rows: []}"),
        ["INTT | 'INTT' is no type of Spark's: Schema c INTT has 'INTT' where a type of Spark's is due (character 3)."],
    ),
    "no columns": (
        customers(NOTHING),
        ["{ | it is not known which columns lake.raw.customers has; name them and their types under 'columns'"],
    ),
    "a number in doubt": (
        customers("{rows: [{id: 1, n: 1.5}]}"),
        [
            "1.5 | 'n': 1.5 may be a DOUBLE, a DECIMAL or a STRING; put a STRING in quotes",
        ],
    ),
    "a date in doubt": (
        customers("{rows: [{id: 1, n: 2024-01-01}]}"),
        [
            "2024-01-01 | 'n': 2024-01-01 may be a DATE, a TIMESTAMP or a STRING; put a STRING in quotes",
        ],
    ),
    "Norway": (
        customers("{rows: [{id: 1, n: NO}]}"),
        ["NO | 'n': NO may be a truth value or a text; write true or false, or 'NO' in quotes"],
    ),
    "a list in doubt": (
        customers("{rows: [{id: 1, n: [1]}]}"),
        ["[ | 'n': this may be of many types; say which: columns: {n: 'ARRAY<INT>'}"],
    ),
    "an octal number in doubt": (
        customers("{rows: [{id: 007}]}"),
        ["007 | 'id': 007 may be a DOUBLE, a DECIMAL or a STRING; put a STRING in quotes, else say which"],
    ),
    "a column of two types": (
        customers("{rows: [{id: 1}, {id: a}]}"),
        ["a | 'id': this is string, and values above are bigint; say which: columns: {id: 'BIGINT'}"],
    ),
    "a column of nothing": (
        customers("{rows: [{id: null}]}"),
        ["id | 'id' is NULL in every row; say which: columns: {id: 'STRING'}"],
    ),
    "text with commas without types": (
        customers("{csv: 'id'}"),
        ["id' | 'id': a text with commas says nothing of types; say which: columns: {id: 'STRING'}"],
    ),
    "text with commas": (
        customers("{columns: {id: INT, n: STRING},\n      csv: 'id,n\n\n        1,\"a\n\n        2,b'}"),
        ['" | these quotes are never closed'],
    ),
    "SQL that reads": (
        customers("{sql: SELECT id FROM raw.customers}"),
        ["raw.customers | rows for a test come from no table; write SELECT ... FROM VALUES (...) AS t(...)"],
    ),
    "no SQL": (customers("{sql: SELECT 1 +}"), ["+ | bad SQL"]),
    "no partition": (
        f"- {{table: revenue, name: t, partition: hh=1, given: {ORDERS}, expect: {NOTHING}}}",
        ["hh | partition 'hh=1' does not fit the partition keys ds"],
    ),
    "no date": (
        f"- {{table: revenue, name: t, partition: ds=2024-02-30, given: {ORDERS}, expect: {NOTHING}}}",
        ["ds | ds=2024-02-30 is no date as 'yyyy-MM-dd' writes it; write for example ds=2024-01-31"],
    ),
    "no time": (
        f"- {{table: revenue, name: t, schedule_time: noon, given: {ORDERS}, expect: {NOTHING}}}",
        ["noon | 'noon' is no time; write for example 2024-01-31 06:00:00"],
    ),
    "an unknown column expected": (
        f"- {{table: revenue, name: t, given: {ORDERS}, expect: {{rows: [{{ds: a, rev: 1}}], key: [d], only: [revenu]}}}}",
        [
            "rev | the query returns no column 'rev'; it returns ds, revenue",
            "d | the query returns no column 'd'; it returns ds, revenue",
            "revenu | the query returns no column 'revenu'; did you mean 'revenue'?",
            "[ | 'd' is a key and has to be compared, too",
        ],
    ),
    "an expected type": (
        f"- {{table: revenue, name: t, given: {ORDERS}, expect: {{rows: [], types: {{rev: INT, revenue: WRONG<}}}}}}",
        ["rev | the query returns no column 'rev'", "WRONG | "],
    ),
    "a name twice": (
        f"- {{table: revenue, name: t, given: {ORDERS}, expect: {NOTHING}}}\n" * 2,
        ["t | lake.sales.revenue has a test of this name already"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, name: str) -> None:
    tests, wanted = MISTAKES[name]
    _, told = load(tmp_path, tests)
    assert len(told) == len(wanted), told
    for mistake, message in zip(sorted(told), sorted(wanted), strict=True):
        assert mistake.startswith(message)


def test_sound_tests_and_mistakes_beside_them(tmp_path: Path) -> None:
    good = f"- {{table: revenue, name: good, given: {ORDERS}, expect: {NOTHING}}}\n"
    read, told = load(tmp_path, f"{good}- {{table: nowhere, name: t, expect: {NOTHING}}}\n")
    assert [test.full_name for test in read] == ["lake.sales.revenue::good"]
    assert len(told) == 1


def test_tests_may_stand_in_a_file_of_their_own_and_name_tables_in_full(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "tests.yaml").write_text(
        f"tests:\n- {{table: lake.sales.revenue, name: t, given: {ORDERS}, expect: {NOTHING}}}\n"
    )
    read, told = load(tmp_path, "  []\n")
    assert ([test.name for test in read], told) == (["t"], [])


def test_columns_stand_in_the_order_of_the_source_and_all_of_them_are_there(tmp_path: Path) -> None:
    row = "{ds: 2024-01-01, amount: 1, id: 5, at: 2024-01-01}"
    (test,), told = load(tmp_path, f"- {{table: revenue, name: t, given: {{orders: {{rows: [{row}]}}}}, expect: {NOTHING}}}\n")
    assert told == []
    (orders,) = test.given
    assert [column.name for column in orders.columns] == ["id", "amount", "tags", "at", "ds"]
    assert orders.rows == (("5", "1.00", None, "2024-01-01 00:00:00+01:00", "2024-01-01"),)


def test_types_are_told_by_values_that_leave_no_doubt(tmp_path: Path) -> None:
    rows = "{rows: [{id: 1, s: '007', t: plain, b: true, d: .nan}, {id: -20}, {s: null, extra: 'x'}]}"
    (test,), told = load(tmp_path, customers(rows))
    assert told == []
    given = test.given[1]
    kinds = [(column.name, column.type) for column in given.columns]
    assert kinds == [("id", "bigint"), ("s", "string"), ("t", "string"), ("b", "boolean"), ("d", "double"), ("extra", "string")]
    assert given.rows[2] == (None, None, None, None, None, "x")


def test_a_dynamic_table_is_given_by_what_its_query_returns(tmp_path: Path) -> None:
    test = "- {{table: total, name: t, given: {{revenue: {{rows: [{}]}}}}, expect: {{rows: [{{revenue: 1}}]}}}}\n"
    read, told = load(tmp_path, test.format("{ds: '2024-01-01', revenue: 1}"))
    assert (len(read), told) == (1, [])
    _, told = load(tmp_path, test.format("{day: '2024-01-01'}"))
    assert told == ["day | lake.sales.revenue has no column 'day'; it has ds, revenue"]


def test_text_with_commas(tmp_path: Path) -> None:
    given = '|\n        id,name\n        1,"a ""quoted"", name"\n        2,\n        3,""\n\n        ,NULL\n'
    read, told = load(tmp_path, customers(f"\n      columns: {{id: INT, name: STRING}}\n      csv: {given}"))
    assert told == []
    assert read[0].given[1].rows == (("1", 'a "quoted", name'), ("2", None), ("3", ""), (None, "NULL"))


def test_a_value_in_text_with_commas_is_told_at_its_place(tmp_path: Path) -> None:
    given = "|\n        id,name\n        1,a\n        x,b\n        2,c,d\n"
    _, told = load(tmp_path, customers(f"\n      columns: {{id: INT, name: STRING}}\n      csv: {given}"))
    assert told == [
        "x | 'id': 'x' is no int; write a whole number",
        "2 | this row has 3 values, and there are 2 columns",
    ]


def test_a_table_that_is_broken_itself_is_no_mistake_of_its_tests(tmp_path: Path) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(
        "dynamic_tables:\n- {name: a.b.c, freshness: 1 day, query: SELECT FROM}\n"
        "tests:\n- {table: c, name: t, expect: {rows: []}}\n- {table: zzz, name: t, expect: {rows: []}}\n"
    )
    definitions, broken = load_sound_definitions(tmp_path, cache=Cache(None))
    _, mistakes = load_query_tests({file: file.read_text()}, definitions, broken, analyse)
    assert len(broken) == 1
    assert [re.sub(".*/", "", str(mistake)) for mistake in mistakes] == ["sales.yaml:5:11: there is no dynamic table 'zzz'"]


def test_definitions_do_not_look_at_tests(tmp_path: Path) -> None:
    """What a DAG is made of: not even a mistake in a test is in its way."""
    (tmp_path / "sales.yaml").write_text(DEFINITIONS + "- {table: 5, nonsense: [}\n".replace("[", "[]"))
    definitions, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert (len(definitions.tables), mistakes) == (4, ())
    assert all("nonsense" not in table.text for table in definitions.tables.values())
