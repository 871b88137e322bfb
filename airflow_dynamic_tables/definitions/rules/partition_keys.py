"""Validation of the partition keys of a table."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.partition_transforms import rejoined
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, format_of
from airflow_dynamic_tables.definitions.queries.text import Analysis
from airflow_dynamic_tables.definitions.rules.key_problems import key_problems, output_problems


def key_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of the keys by themselves, and for the format of the table."""
    for place, problem in key_problems(rejoined(declared.partitioned_by), format_of(entry, declared)):
        yield entry.mistake("partitioned_by", problem, place)


def key_output_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    """Yield mistakes of keys whose column the query does not return, or not in a suitable type, as far as its text tells."""
    for place, problem in output_problems(rejoined(declared.partitioned_by), analysis):
        yield entry.mistake("partitioned_by", problem, place)
