"""Comparison of the rows that a query returns with those of its table, as multisets."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.refresh.plan import Drift, RefreshPlan

_OURS, _THEIRS = "query rows", "table rows"
"""Names of counts. A column cannot have them: tables do not accept a space in all formats, and Spark would report two columns."""


def drift(plan: RefreshPlan, stored: DataFrame, table: DataFrame) -> tuple[Drift, ...]:
    """Compare rows by partition; partitions without any rows are omitted.

    Values are equal as Spark groups them: null is null, NaN is NaN, and 0.0 is -0.0. Floating-point numbers have no tolerance.

    :param stored: the rows of the planned partitions as the job stored them.
    :param table: the rows of the table.
    """
    theirs = table if plan.partitions.is_whole else table.where(plan.partitions.predicate)
    ours = {**{name.lower(): name for name in stored.columns}, **{name: name for name in stored.columns}}
    kinds = {field.name: field.dataType for field in theirs.schema.fields}
    keys = [key for key in plain_keys(plan.partition_keys) if key in kinds]
    columns = {name: f"c{number}" for number, name in enumerate(kinds)}

    def values(frame: DataFrame, names: dict[str, str | None]) -> list[Column]:
        # The table may have columns that the query does not return any more; they are null in new rows.
        found = {name: F.lit(None) if own is None else frame[quote(own)] for name, own in names.items()}
        return [_comparable(value.cast(kinds[name]), kinds[name]).alias(columns[name]) for name, value in found.items()]

    mine = stored.select(
        *values(stored, {name: ours.get(name, ours.get(name.lower())) for name in kinds}), F.lit(1).alias("ours")
    )
    yours = theirs.select(*values(theirs, {name: name for name in kinds}), F.lit(0).alias("ours"))
    counts = (F.sum("ours").alias(_OURS), F.sum(1 - F.col("ours")).alias(_THEIRS))
    rows = mine.union(yours).groupBy(*columns.values()).agg(*counts)
    groups = rows.groupBy(*(F.col(columns[key]).cast("string") for key in keys)).agg(
        F.sum(quote(_THEIRS)),
        F.sum(F.greatest(F.col(quote(_OURS)) - F.col(quote(_THEIRS)), F.lit(0))),
        F.sum(F.greatest(F.col(quote(_THEIRS)) - F.col(quote(_OURS)), F.lit(0))),
    )
    found = [
        Drift(dict(zip(keys, group, strict=False)), *group[len(keys) :]) for group in groups.collect() if group[-1] is not None
    ]
    return tuple(sorted(found, key=lambda one: tuple(map(str, one.partition.values()))))


def _comparable(value: Column, kind: T.DataType) -> Column:
    """A value that Spark can group by: maps become sorted arrays of their entries, and variants their text."""
    if not _has_other(kind):
        return value
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: _comparable(item, element))
    if isinstance(kind, T.MapType):
        types = kind.keyType, kind.valueType
        parts = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                _comparable(entry["key"], types[0]).alias("k"), _comparable(entry["value"], types[1]).alias("v")
            ),
        )
        return F.array_sort(parts)
    if isinstance(kind, T.StructType):
        fields = (_comparable(value.getField(field.name), field.dataType).alias(str(at)) for at, field in enumerate(kind.fields))
        return F.when(value.isNotNull(), F.struct(*fields))
    return value.cast("string")


def _has_other(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_other(kind.elementType)
    if isinstance(kind, T.StructType):
        return any(_has_other(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or kind.typeName() == "variant"
