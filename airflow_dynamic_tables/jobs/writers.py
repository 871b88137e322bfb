"""Writing: the rows of a refresh become files of its stage, in folders by partition."""

from __future__ import annotations

from itertools import count, islice

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import DataType, StringType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION


def write(frame: DataFrame, plan: RefreshPlan) -> None:
    """One file for a small partition, several for a large one: AQE rebalances by the partition keys.

    Where the files are to have the keys, too, copies of them name the folders. Files that are copied into a server need none.
    """
    if plan.sink is not None:
        frame.write.mode("overwrite").format(plan.file_format).save(plan.data_location)
        return
    keys = [F.col(quote(key)) for key in plan.partition_keys]
    balanced = frame.hint("rebalance", *keys)
    folders = list(plan.partition_keys)
    if plan.keys_in_files:
        taken = {name.lower() for name in frame.columns}
        folders = list(islice((name for name in map("_partition_{}".format, count()) if name not in taken), len(keys)))
        for folder, name, key in zip(folders, plan.partition_keys, keys, strict=True):
            balanced = balanced.withColumn(folder, _folder(key, frame.schema[name].dataType))
    balanced.write.mode("overwrite").partitionBy(*folders).format(plan.file_format).save(plan.data_location)


def _folder(key: Column, kind: DataType) -> Column:
    """What a folder is named by: the key, but for texts of which Spark would give the folder of nulls to more than one."""
    if not isinstance(kind, StringType):
        return key
    is_alike = key.isin("", NULL_PARTITION) | key.startswith("=")
    return F.when(is_alike, F.concat(F.lit("="), key)).otherwise(key)
