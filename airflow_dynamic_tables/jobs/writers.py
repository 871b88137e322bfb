"""Writing the rows of a refresh to files of its stage, in folders by partition."""

from __future__ import annotations

from itertools import count, islice

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import NumericType, StringType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_transforms import hidden_key, source_column
from airflow_dynamic_tables.core.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.jobs.partitioning import transformed


def write(frame: DataFrame, plan: RefreshPlan) -> None:
    """Write one file for a small partition, several for a large one: AQE rebalances by the partition keys.

    If the files contain the keys, folders are named by copies of them, or by transforms of their columns. Files that are copied
    into a server have no folders.
    """
    if plan.sink is not None:
        frame.write.mode("overwrite").format(plan.file_format).save(plan.data_location)
        return
    folders = list(plan.partition_keys)
    if plan.keys_in_files:
        taken = {name.lower() for name in frame.columns}
        folders = list(islice((name for name in map("_partition_{}".format, count()) if name not in taken), len(folders)))
        for folder, key in zip(folders, plan.partition_keys, strict=True):
            frame = frame.withColumn(folder, _folder(frame, key))
    balanced = frame.hint("rebalance", *(F.col(quote(folder)) for folder in folders))
    balanced.write.mode("overwrite").partitionBy(*folders).format(plan.file_format).save(plan.data_location)


def _folder(frame: DataFrame, name: str) -> Column:
    """The folder name of a partition: the key, prefixed for texts that Spark would put in the folder of nulls."""
    hidden = hidden_key(name)
    kind = frame.schema[source_column(name)].dataType
    key = F.col(quote(name)) if hidden is None else transformed(hidden, kind)
    is_text = (
        isinstance(kind, StringType) if hidden is None else hidden.transform == "truncate" and not isinstance(kind, NumericType)
    )
    if not is_text:
        return key
    is_alike = key.isin("", NULL_PARTITION) | key.startswith("=")
    return F.when(is_alike, F.concat(F.lit("="), key)).otherwise(key)
