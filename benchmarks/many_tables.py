"""Definitions of many tables, as the benchmarks of parsing and of comparing have them."""

from __future__ import annotations


def definitions_of(numbers: range) -> str:
    """A file of them."""
    first = numbers[0]
    tables = "".join(_table(number, first) for number in numbers)
    return f"""defaults: {{catalog: lake, database: bench, start_date: 2024-01-01}}
sources:
  - {{name: raw.orders_{first:04d}, format: parquet, path: /data/orders, partitioned_by: [ds]}}
dynamic_tables:
{tables}"""


def _table(number: int, source: int) -> str:
    return f"""  - name: table_{number:04d}
    comment: Revenue per day and country, number {number}
    freshness: 1 day
    partitioned_by: [ds]
    options: {{partition.fields.ds.date-formatter: yyyy-MM-dd}}
    retries: 3
    spark: {{conf: {{spark.executor.memory: 4g}}}}
    query: |
      WITH paid AS (SELECT ds, country, amount, {number} AS number FROM raw.orders_{source:04d} WHERE state = 'paid')
      SELECT ds, country, count(*) AS orders, sum(amount) AS revenue, max(number) AS number
      FROM paid
      GROUP BY ds, country
"""
