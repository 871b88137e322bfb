"""Partition lineage compared with Spark: if a partition of a source changes, no other rows of a query change than it says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from airflow_dynamic_tables.core.partitions import NULL_PARTITION, describe
from airflow_dynamic_tables.core.refresh.key_sources import PartitionMapping
from airflow_dynamic_tables.definitions.queries.text import lineage
from tests.support.fuzzing.lineage_queries import KEYS, KINDS, Generator, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DAYS = [date(2024, 1, 1) + timedelta(days=days) for days in (-1, 4, 5, 6, 10, 31)]
_TEXTS = [day.isoformat() for day in _DAYS]
_ODD = ["2024-1-5", "", None, "x", "2024-02-30", "2024-01-05 ", "Ä"]
_TYPES = {f"lake.raw.{name}": columns for name, columns in KINDS.items()}
_CHANGES = 4

Row = tuple[Any, ...]


@dataclass
class Score:
    """How many changes were compared, and how many partitions were dirty beyond the needed ones."""

    compared: int = 0
    failed: int = 0
    mapped: int = 0
    ratios: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        ratio = f"{median(self.ratios):.2f}" if self.ratios else "-"
        return f"{self.compared} changes, {self.mapped} mapped, dirty over needed: median {ratio}; {self.failed} queries refused"


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Set settings of Spark for a while."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


FAST = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}


def rows_of(random: Random, table: str, *, has_days: bool) -> list[Row]:
    """Return rows of a table, some of them twice."""
    rows = [_row(random, table, has_days=has_days) for _ in range(random.randrange(3, 14))]
    return rows + random.sample(rows, 2)


def _row(random: Random, table: str, *, has_days: bool) -> Row:
    number = random.choice([0, 1, 2, 3, 5, None])
    day = random.choice(_DAYS)
    keys: Row = {
        "d": (random.choice([*_DAYS, None]),),
        "p": (day.year, day.month, f"{day.day:02}" if has_days else random.choice([str(day.day), None, "x"])),
        "x": (),
    }.get(table, (random.choice(_TEXTS if has_days else [*_TEXTS, *_ODD]),))
    return (*keys, random.choice([1, 2, 3]), number)


def changed(random: Random, table: str, rows: Sequence[Row], *, has_days: bool) -> tuple[Row, list[Row]]:
    """Return the key of a partition, and the rows with other rows in it."""
    width = len(KEYS[table])
    key = random.choice([*rows, _row(random, table, has_days=has_days)])[:width]
    kept = [row for row in rows if row[:width] != key]
    own = [row for row in rows if row[:width] == key]
    choice = random.randrange(3)
    more = [(*key, random.choice([1, 2, 3]), random.choice([1, 4, 7, None])) for _ in range(random.randrange(1, 3))]
    return key, kept if choice == 0 and own else kept + more if choice == 1 else kept + own + more


def show(spark: SparkSession, name: str, table: str, rows: Sequence[Row]) -> None:
    """Make a temporary view."""
    kinds = KINDS[table]
    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows or [(None,) * len(kinds)])
    columns = ", ".join(f"cast({column} AS {kind}) AS {column}" for column, kind in kinds.items())
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {columns} FROM VALUES {values} AS t({', '.join(kinds)}) WHERE {bool(rows)}"
    )


def _literal(value: object) -> str:
    return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"


def results(spark: SparkSession, query: Query, variants: Mapping[int, str]) -> list[dict[Any, Counter[Row]]]:
    """Return the rows by key of the query over the tables, and over each variant of one of them."""
    texts = [query.text.replace("lake.raw.", "")]
    texts += [
        query.text.replace(f"lake.raw.{table} ", f"{table}_{number} ").replace("lake.raw.", "")
        for number, table in variants.items()
    ]
    whole = " UNION ALL ".join(f"SELECT {number} AS v, q.* FROM ({text}) AS q" for number, text in enumerate(texts))
    found: list[dict[Any, Counter[Row]]] = [defaultdict(Counter) for _ in texts]
    for number, key, *values in spark.sql(whole).collect():
        found[number][key][tuple(values)] += 1
    return found


def text_of(value: Any) -> str | None:
    return None if value is None else str(value)


def compare(spark: SparkSession, seed: int, score: Score, *, has_days: bool) -> None:
    """Compare some queries of a seed over the same tables."""
    random = Random(seed)
    generator = Generator(random, has_days)
    tables = {table: rows_of(random, table, has_days=has_days) for table in KINDS}
    for table, rows in tables.items():
        show(spark, table, table, rows)
    variants = {}
    keys = {}
    for number in range(1, _CHANGES + 4):
        table = random.choice("oooccdpx")
        keys[number], rows = changed(random, table, tables[table], has_days=has_days)
        variants[number] = table
        show(spark, f"{table}_{number}", table, rows)
    for _ in range(10):
        query = generator.query()
        read = {number: table for number, table in variants.items() if f"lake.raw.{table} " in query.text}
        chosen = dict(list(read.items())[:_CHANGES])
        _compare_one(spark, query, chosen, keys, score)


def _compare_one(spark: SparkSession, query: Query, variants: Mapping[int, str], keys: Mapping[int, Row], score: Score) -> None:
    from pyspark.errors import PySparkException

    try:
        before, *after = results(spark, query, variants)
    except PySparkException as error:
        if not any(
            name in str(error) for name in ("CAST_INVALID_INPUT", "CANNOT_PARSE", "AMBIGUOUS", "MISMATCH", "CAST_OVERFLOW")
        ):
            raise AssertionError(query.text) from error
        score.failed += 1
        return
    found = lineage(query.text, "k", _TYPES, timezone=spark.conf.get("spark.sql.session.timeZone") or "")
    for (number, table), rows in zip(variants.items(), after, strict=True):
        name = f"lake.raw.{table}"
        partition = dict(zip(KEYS[table], (text_of(value) or NULL_PARTITION for value in keys[number]), strict=True))
        sources = {"k": found.sources[name]} if name in found.sources else {}
        affected = PartitionMapping(sources, {"k": query.type}).affected([describe(partition)])
        needed = {key for key in before.keys() | rows.keys() if before.get(key) != rows.get(key)}
        dirty = {key for key in before.keys() | rows.keys() if affected.include({"k": text_of(key)})}
        assert needed <= dirty, f"{query.text}\n{name} {partition}: {needed - dirty} of {sources}"
        score.compared += 1
        if sources and None not in keys[number]:
            score.mapped += 1
            if needed:
                score.ratios.append(len(dirty) / len(needed))


def _check(spark: SparkSession, seeds: range) -> Score:
    score = Score()
    for seed in seeds:
        ansi, zone = [("true", "UTC"), ("false", "Europe/Berlin"), ("true", "America/Sao_Paulo")][seed % 3]
        with settings(spark, {**FAST, "spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
            compare(spark, seed, score, has_days=ansi == "true" or seed % 2 == 0)
    print(score)
    return score


def test_no_other_rows_change(spark: SparkSession) -> None:
    score = _check(spark, range(3))
    assert score.mapped > 30
    assert median(score.ratios) <= 1.2


@pytest.mark.large
@pytest.mark.parametrize("first", range(3, 243, 12))
def test_no_other_rows_change_in_many_queries(spark: SparkSession, first: int) -> None:
    score = _check(spark, range(first, first + 12))
    assert median(score.ratios) <= 1.2


_EXPRESSIONS = {
    "s": [
        *(
            "{0}",
            "substr({0}, 1, 7)",
            "substr({0}, 0, 4)",
            "substr({0}, -2)",
            "substr({0}, 3, 99)",
            "substring({0} FROM 6 FOR 2)",
        ),
        *(
            "left({0}, 4)",
            "left({0}, 0)",
            "right({0}, 2)",
            "right({0}, 0)",
            "right({0}, 99)",
            "upper({0})",
            "lower({0})",
            "trim({0})",
        ),
        *("concat({0}, '-', {0})", "{0} || 'x'", "replace({0}, '-', '')", "lpad({0}, 2, '0')", "lpad({0}, 12, '*')"),
        *("to_date({0})", "date({0})", "cast({0} AS date)", "try_cast({0} AS date)", "{0}::date", "to_date({0}, 'yyyyMMdd')"),
        *("to_date({0}, 'yyyy-MM-dd')", "to_date({0}, 'yyyy-MM')", "to_date({0}, 'yyyyMM')", "to_date({0}, 'yyyy')"),
        *(
            "to_date({0}, 'dd.MM.yyyy')",
            "cast({0} AS int)",
            "cast({0} AS bigint)",
            "cast({0} AS smallint)",
            "cast({0} AS tinyint)",
        ),
    ],
    "i": [
        "cast({0} AS string)",
        "{0} || ''",
        "lpad({0}, 2, '0')",
        "substr({0}, 1, 6)",
        "cast({0} AS bigint)",
        "make_date(2024, {0}, 1)",
    ],
    "b": ["{0}", "cast({0} AS string)", "concat('is ', {0})"],
}
_OF_BOTH = [
    *("year({0})", "month({0})", "day({0})", "dayofmonth({0})", "quarter({0})", "last_day({0})", "date_add({0}, 3)"),
    *("date_sub({0}, 40)", "cast({0} AS string)", "to_date({0})", "make_date(year({0}), month({0}), 1)"),
    *(f"trunc({{0}}, '{unit}')" for unit in ("year", "YYYY", "yy", "quarter", "month", "mon", "MM", "week", "day")),
    *(
        f"{function}(date_trunc('{unit}', {{0}}){rest}"
        for unit in ("year", "quarter", "month", "week", "day", "DD", "hour")
        for function, rest in (("to_date", ")"), ("date_format", ", 'yyyy-MM-dd')"))
    ),
    *(f"date_format({{0}}, '{pattern}')" for pattern in ("yyyy", "yyyyMM", "yyyy/MM/dd", "dd.MM.yyyy", "MM_dd yyyy", "yyyy-M-d")),
    *("date_format(cast({0} AS timestamp), 'yyyyMMdd')", "to_date(to_timestamp({0}))"),
]
_NUMBERS = ["0", "1", "12", "-7", "20240105", "127", "128", "-128", "32767", "32768", "2147483647", "4294967296", "007"]
_VALUES = {
    "d": [
        *("2024-01-05", "2024-02-29", "2023-12-31", "2000-01-01", "1999-12-27", "1970-01-01", "1969-12-31", "1900-01-01"),
        *(
            "1912-06-30",
            "2018-11-04",
            "2011-12-30",
            "2011-12-31",
            "1994-12-31",
            "2199-12-31",
            "2200-01-01",
            "1899-12-31",
            "0001-01-01",
        ),
        *("2024-03-31", "2024-10-27", "1982-03-31", "1993-08-21", "2016-10-16"),
    ],
    "b": ["true", "false"],
    "i": _NUMBERS,
}
_VALUES["s"] = [
    *(*_VALUES["d"], *_NUMBERS, "2024-1-5", "2024-01-05 ", " 2024-01-05", "2024-02-30", "2023-02-29", "2024-01-05T00:00:00"),
    *(
        "2024-01-05 23:59:59",
        "2024-01",
        "202401",
        "2024",
        "05.01.2024",
        "today",
        "x",
        "Ä",
        "ß",
        "a b",
        "a'b",
        "1e3",
        "+5",
        "-0",
        "1.0",
        "\uff12",
    ),
]


@pytest.mark.sampled
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo", "Pacific/Apia"])
def test_functions_have_the_values_of_spark(spark: SparkSession, zone: str, ansi: str) -> None:
    """Every value that is known without Spark."""
    types = {"s": "string", "d": "date", "i": "int", "b": "boolean"}
    expected = {}
    for column, expressions in {**_EXPRESSIONS, "s": [*_EXPRESSIONS["s"], *_OF_BOTH], "d": _OF_BOTH}.items():
        for expression in (each.format(column) for each in expressions):
            found = lineage(f"SELECT {expression} AS k FROM lake.raw.t", "k", {"lake.raw.t": types}, timezone=zone)
            for value in _VALUES[column] if found.sources else ():
                known = found.sources["lake.raw.t"].values({column: value})
                if known is not None:
                    expected[expression, column, value] = known
    assert len(expected) > 1_500
    by_expression: dict[tuple[str, str], list[str]] = defaultdict(list)
    for expression, column, value in expected:
        by_expression[expression, column].append(value)
    parts = []
    for (expression, column), values in by_expression.items():
        rows = ", ".join("(" + repr(value).replace('"', "'").replace("a'b", "a\\'b") + ")" for value in values)
        source = f"SELECT v, cast(v AS {types[column]}) AS {column} FROM VALUES {rows} AS t(v)"
        shown = expression.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f"SELECT '{shown}' AS e, '{column}' AS c, v, cast({expression} AS string) AS k FROM ({source})")
    with settings(spark, {**FAST, "spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone}):
        wrong = [
            (*place, value, expected[place])
            for start in range(0, len(parts), 30)
            for *place_, value in spark.sql(" UNION ALL ".join(parts[start : start + 30])).collect()
            if expected[place := (place_[0], place_[1], place_[2])] != {value}
        ]
    assert not wrong
