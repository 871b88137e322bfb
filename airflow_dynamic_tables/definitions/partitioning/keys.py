"""Partition keys of one declared table that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partitioning import rejoined
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, format_of
from airflow_dynamic_tables.definitions.partitioning.problems import key_problems, output_problems
from airflow_dynamic_tables.definitions.queries.text import Analysis


def key_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """What is wrong with the keys by themselves, and for the format of the table."""
    for place, problem in key_problems(rejoined(declared.partitioned_by), format_of(entry, declared)):
        yield entry.mistake("partitioned_by", problem, place)


def key_output_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    """Keys of columns that the query does not return, or not in a type that they can be of, as far as its text tells."""
    for place, problem in output_problems(rejoined(declared.partitioned_by), analysis):
        yield entry.mistake("partitioned_by", problem, place)
