"""What columns of a table cannot have is refused by the name of the column, however deep it is nested."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import NO_LIMITS, TypeLimits
from airflow_dynamic_tables.exceptions import SchemaEvolutionError

LIMITS = TypeLimits({"timestamp_ntz": "cast it"}, ":`")
NESTINGS = ("{}", "array<{}>", "map<string,{}>", "map<{},int>", "struct<a:int,b:array<struct<c:{}>>>")


@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_type(nesting: str) -> None:
    columns = [Column("fine", nesting.format("timestamp")), Column("at", nesting.format("timestamp_ntz"))]
    with pytest.raises(SchemaEvolutionError, match=r"Column 'at' has type .*timestamp_ntz.*; cast it\."):
        LIMITS.check(columns)
    NO_LIMITS.check(columns)


@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("name", ["a:b", "a``b", ""])
def test_a_name(nesting: str, name: str) -> None:
    columns = [Column("fine:", nesting.format("struct<`a b`:int>")), Column("odd", nesting.format(f"struct<x:int,`{name}`:int>"))]
    with pytest.raises(SchemaEvolutionError, match="Column 'odd' has a nested field"):
        LIMITS.check(columns)
    NO_LIMITS.check(columns)
