"""Writing: the rows of a refresh become files of its stage, in folders by partition."""

from __future__ import annotations

from itertools import count, islice

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan


def write(frame: DataFrame, plan: RefreshPlan) -> None:
    """One file for a small partition, several for a large one: AQE rebalances by the partition keys.

    Where the files are to have the keys, too, copies of them name the folders.
    """
    keys = [F.col(quote(key)) for key in plan.partition_keys]
    balanced = frame.hint("rebalance", *keys)
    folders = list(plan.partition_keys)
    if plan.keys_in_files:
        taken = {name.lower() for name in frame.columns}
        folders = list(islice((name for name in map("_partition_{}".format, count()) if name not in taken), len(keys)))
        for folder, key in zip(folders, keys, strict=True):
            balanced = balanced.withColumn(folder, key)
    balanced.write.mode("overwrite").partitionBy(*folders).format(plan.file_format).save(plan.data_location)
