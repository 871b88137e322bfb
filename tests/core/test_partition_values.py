"""Values of partitions: one spelling each."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.partition_dates import normal_value, normalised
from airflow_dynamic_tables.core.partitions import NULL_PARTITION, WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.schema import Column


@pytest.mark.parametrize(
    ("value", "kind", "normal"),
    [
        ("03", "int", "3"),
        (" +7 ", "bigint", "7"),
        ("-0", "smallint", "0"),
        ("3", "tinyint", "3"),
        ("03", "string", "03"),
        (" 3", "varchar(2)", " 3"),
        ("2024-03-01", "date", "2024-03-01"),
        ("TRUE", "boolean", "true"),
        ("0", "boolean", "false"),
        ("1.5", "decimal(10,2)", "1.50"),
        ("7", "decimal(10)", "7"),
        (None, "int", None),
        (NULL_PARTITION, "date", NULL_PARTITION),
    ],
)
def test_one_spelling(value: str | None, kind: str, normal: str | None) -> None:
    assert normal_value(value, kind) == normal
    assert normal_value(normal, kind) == normal


@pytest.mark.parametrize(
    ("value", "kind"),
    [("3a", "int"), ("1_0", "int"), ("", "bigint"), ("2024-13-01", "date"), ("maybe", "boolean"), ("x", "decimal(2)")],
)
def test_what_is_no_value_of_the_type(value: str, kind: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        normal_value(value, kind)


def test_two_spellings_are_one_partition() -> None:
    columns = (Column("ds", "string"), Column("hh", "int"))
    two = PartitionSet.of([{"ds": "01", "hh": "03"}, {"ds": "01", "hh": "3"}])
    assert normalised(two, columns) == PartitionSet.of([{"ds": "01", "hh": "3"}])
    assert normalised(two, ()) == two
    assert normalised(WHOLE_TABLE, columns) == WHOLE_TABLE
