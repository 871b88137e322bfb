"""Calls that PySpark 3.5 lacks or spells otherwise; with the support of Spark 3.5, this module goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T  # noqa: N812 - pyspark's own habit


def is_spark_3(version: str) -> bool:
    """Return whether a version of Spark is 3.5."""
    return version.startswith("3.")


def condition(error: PySparkException) -> str | None:
    """Spark's name of what went wrong."""
    return error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()


def from_ddl(text: str) -> T.DataType:
    """Parse a type, or columns, in Spark's DDL."""
    return T._parse_datatype_string(text)  # DataType.fromDDL is new in Spark 4.0


def metadata_column(frame: DataFrame, name: str) -> Column:
    """A hidden column of files, even if a column has the same name."""
    if not is_spark_3(frame.sparkSession.version):
        return frame.metadataColumn(name)
    column: Any = Column
    found: Column = column(frame._jdf.metadataColumn(name))
    return found


def rebalanced(frame: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """The rows in partitions of balanced sizes, each with few values of the keys."""
    if not is_spark_3(frame.sparkSession.version):
        return frame.hint("rebalance", *keys)
    python: Any = frame
    columns: Sequence[Any] = keys  # only expressions of Java can be columns of a hint
    return DataFrame(python._jdf.hint("rebalance", python._jseq([column._jc.expr() for column in columns])), frame.sparkSession)
