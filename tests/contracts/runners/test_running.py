"""The same plan gives the same stage, or the same error, whoever runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_dynamic_tables.clients.files import exists, read_text
from airflow_dynamic_tables.core.refresh.expectations import Action, Expectation
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult, SourceBinding
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.exceptions import JobFailedError
from tests.contracts.runners.conftest import Bench

pytestmark = pytest.mark.spark

Plan = Callable[..., RefreshPlan]


def rows(result: RefreshResult) -> list[dict[str, object]]:
    """What is in the stage, without the copies of the keys that name its folders."""
    tables = [pq.read_table(file.path.removeprefix("file://"), partitioning=None) for file in result.files]
    return sorted(pa.concat_tables(tables).to_pylist(), key=str)


def test_rows_types_partitions_and_expectations(bench: Bench, plan: Plan, tmp_path: Path) -> None:
    for number in (1, 2):
        pq.write_table(pa.table({"n": [number, None, -1], "day": [f"d{number}"] * 3}), tmp_path / f"{number}[x].parquet")
    source = SourceBinding("raw.o", "o", "parquet", "v1", tuple(f"file://{tmp_path}/{number}[x].parquet" for number in (1, 2)))
    expectations = (
        Expectation("known", Action.DROP, "n IS NOT NULL"),
        Expectation("positive", Action.WARN, "n > 0"),
        Expectation("once", Action.WARN, unique=("n",)),
    )
    planned = plan(
        "SELECT day, n, cast(n AS decimal(9, 2)) AS price, array(n) AS list FROM o",
        source,
        partition_keys=("day",),
        expectations=expectations,
        comments={"n": "a number"},
    )
    bench.runner().run(planned, {})
    result = RefreshResult.from_json(read_text(planned.result_location))
    assert [(row["day"], row["n"]) for row in rows(result)] == [("d1", -1), ("d1", 1), ("d2", -1), ("d2", 2)]
    assert result.columns == (
        Column("day", "string"),
        Column("n", "bigint", comment="a number"),
        Column("price", "decimal(9,2)"),
        Column("list", "array<bigint>", nullable=False),
    )
    assert (result.rows, result.partitions) == (4, ({"day": "d1"}, {"day": "d2"}))
    assert {item.name: item.violations for item in result.expectations} == {"known": 2, "positive": 2, "once": 2}
    assert result.application_id
    assert any(f"Spark application {result.application_id} of " in line for line in bench.lines)
    assert any("4 rows" in line for line in bench.lines)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 1 / (id - 3) AS x FROM range(5)", "DIVIDE_BY_ZERO"),
    ],
)
def test_errors_are_in_the_words_of_spark(bench: Bench, plan: Plan, query: str, words: str) -> None:
    planned = plan(query)
    with pytest.raises(JobFailedError, match=words) as caught:
        bench.runner().run(planned, {})
    assert "\tat " not in str(caught.value)
    assert not exists(planned.result_location)
