"""Comparison of the rows that a query returns with those of its table, as multisets."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql import types as T  # noqa: N812

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_transforms import plain_keys
from airflow_dynamic_tables.core.refresh.plan import Drift, RefreshPlan, RowDifference, ShownDifference

_OURS, _THEIRS = "query rows", "table rows"
"""Names of counts. A column cannot have them: tables do not accept a space in all formats, and Spark would report two columns."""


def drift(plan: RefreshPlan, stored: DataFrame, table: DataFrame) -> tuple[Drift, ...]:
    """Compare rows by partition; partitions without any rows are omitted.

    Values are equal as Spark groups them: null is null, NaN is NaN, and 0.0 is -0.0. Floating-point numbers that are columns
    may differ by the tolerance of the plan.

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
    floats = [columns[name] for name, kind in kinds.items() if isinstance(kind, T.FloatType | T.DoubleType) and name not in keys]
    if plan.float_tolerance is not None and floats:
        rows = _paired(rows, floats, plan.float_tolerance)
    groups = rows.groupBy(*(F.col(columns[key]).cast("string") for key in keys)).agg(
        F.sum(quote(_THEIRS)),
        F.sum(F.greatest(F.col(quote(_OURS)) - F.col(quote(_THEIRS)), F.lit(0))),
        F.sum(F.greatest(F.col(quote(_THEIRS)) - F.col(quote(_OURS)), F.lit(0))),
    )
    found = [
        Drift(dict(zip(keys, group, strict=False)), *group[len(keys) :]) for group in groups.collect() if group[-1] is not None
    ]
    return tuple(sorted(found, key=lambda one: tuple(map(str, one.partition.values()))))


def _paired(rows: DataFrame, floats: list[str], tolerance: float) -> DataFrame:
    """Return rows without their floating-point columns, with the counts of those that are equal within a tolerance as equal.

    Rows that are not equal as they are, and have the same other values, are paired in the order of their floating-point numbers.
    """
    others = [name for name in rows.columns if name not in (_OURS, _THEIRS, *floats)]
    ours, theirs = F.col(quote(_OURS)), F.col(quote(_THEIRS))

    def counted(one: Column, other: Column) -> Column:
        return F.struct(one.cast("bigint").alias(_OURS), other.cast("bigint").alias(_THEIRS))

    none = F.lit(0)
    equal = rows.select(*others, counted(F.least(ours, theirs), F.least(ours, theirs)).alias("counts"))
    copies = F.explode(F.array_repeat(ours > theirs, F.abs(ours - theirs).cast("int"))).alias("ours")
    order = Window.partitionBy(*others, "ours").orderBy(*floats)
    single = rows.where(ours != theirs).select(*others, *floats, copies).withColumn("position", F.row_number().over(order))
    is_ours = F.col("ours")
    pairs = single.groupBy(*others, "position").agg(
        F.count_if(is_ours).alias(_OURS),
        F.count_if(~is_ours).alias(_THEIRS),
        *(F.max(F.when(is_ours, F.col(name))).alias(f"{name} ours") for name in floats),
        *(F.max(F.when(~is_ours, F.col(name))).alias(f"{name} theirs") for name in floats),
    )
    close = (ours == 1) & (theirs == 1)
    for name in floats:
        close &= _is_close(F.col(quote(f"{name} ours")), F.col(quote(f"{name} theirs")), tolerance)
    found = F.when(close, F.array(counted(ours, theirs))).otherwise(F.array(counted(ours, none), counted(none, theirs)))
    return equal.union(pairs.select(*others, F.explode(found))).select(*others, "counts.*")


def _is_close(one: Column, other: Column, tolerance: float) -> Column:
    """Whether two numbers differ by no more than a part of the larger one. An infinite number is close to itself only."""
    difference = F.abs(one.cast("double") - other.cast("double"))
    is_finite = difference < F.lit(float("inf"))
    limit = F.greatest(F.abs(one), F.abs(other)).cast("double") * tolerance
    return one.eqNullSafe(other) | F.coalesce(is_finite & (difference <= limit), F.lit(False))


def difference(shows: ShownDifference, stored: DataFrame, former: DataFrame) -> RowDifference:
    """Compare rows in the columns that both have. Numbers of two types are compared as numbers, other types as texts.

    :param stored: the rows as the job stored them.
    :param former: the rows of the other query.
    """
    kinds = {field.name: field.dataType for field in stored.schema.fields}
    before_kinds = {field.name: field.dataType for field in former.schema.fields}
    common = [name for name in kinds if name in before_kinds]
    columns = {name: f"c{number}" for number, name in enumerate(common)}

    def values(frame: DataFrame) -> list[Column]:
        return [_in_common(frame[quote(name)], kinds[name], before_kinds[name]).alias(columns[name]) for name in common]

    both = stored.select(*values(stored), F.lit(1).alias("ours")).union(former.select(*values(former), F.lit(0).alias("ours")))
    both = both.persist()
    try:
        counts = (F.sum("ours").alias(_OURS), F.sum(1 - F.col("ours")).alias(_THEIRS))
        rows = both.groupBy(*columns.values()).agg(*counts)
        more = F.col(quote(_OURS)) - F.col(quote(_THEIRS))
        named = {columns[name]: name for name in common}
        sums = (F.sum(quote(_THEIRS)), F.sum(quote(_OURS)), F.sum(F.greatest(-more, F.lit(0))), F.sum(F.greatest(more, F.lit(0))))
        before, after, removed, added = (number or 0 for number in rows.agg(*sums).collect()[0])
        key = [columns[name] for name in shows.key if name in columns]
        return RowDifference(
            before,
            after,
            removed,
            added,
            _shown(rows.where(more < 0), named, shows.rows),
            _shown(rows.where(more > 0), named, shows.rows),
            _changed(both, key, named) if key and len(key) == len(shows.key) else None,
        )
    finally:
        both.unpersist()


def _in_common(value: Column, kind: T.DataType, other: T.DataType) -> Column:
    """A value that Spark can group by, in a type that both can be converted to without loss."""
    if kind == other:
        return _comparable(value, kind)
    if isinstance(kind, T.NumericType) and isinstance(other, T.NumericType):
        return value  # a union has the wider type
    return value.cast("string")


def _shown(rows: DataFrame, named: Mapping[str, str], most: int) -> tuple[Mapping[str, str | None], ...]:
    """Some rows as texts, in the order of their columns, so that the same ones are returned each time."""
    texts = [F.col(column).cast("string") for column in named]
    found = rows.select(*texts).orderBy(*named).limit(most).collect()
    return tuple(dict(zip(named.values(), row, strict=True)) for row in found)


def _changed(both: DataFrame, key: list[str], named: Mapping[str, str]) -> dict[str, int]:
    """Count the values that differ by column, of rows whose key occurs once on both sides."""
    others = [column for column in named if column not in key]
    differ = [(~F.max_by(column, "ours").eqNullSafe(F.min_by(column, "ours"))).cast("int").alias(column) for column in others]
    is_pair = (F.col("rows") == 2) & (F.col("new") == 1)
    pairs = both.groupBy(*key).agg(F.count("*").alias("rows"), F.sum("ours").alias("new"), *differ).where(is_pair)
    if not others:
        return {}
    counts = pairs.agg(*(F.sum(column) for column in others)).collect()[0]
    return {named[column]: number or 0 for column, number in zip(others, counts, strict=True)}


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
