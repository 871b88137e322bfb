"""The options of one table: of its partitions, of its way into a server, and those that nothing heeds."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.sinks.options import OPTIONS, option_problems
from airflow_dynamic_tables.core.streaming.partition_commit import OPTIONS as COMMIT_OPTIONS
from airflow_dynamic_tables.core.streaming.partition_commit import commit_problems
from airflow_dynamic_tables.definitions.building import formatters, mode_decision
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, format_of
from airflow_dynamic_tables.definitions.placing.foreign import foreign_problems


def option_mistakes(entry: Entry, declared: TableDeclaration, has_watermark: bool) -> Iterator[Mistake]:
    """What is wrong with the options of a table, but for date formatters; an unknown one stands at its key.

    :param has_watermark: whether a source that it reads may tell by its partitions how far it is.
    """
    sound = entry.dropped.isdisjoint({"freshness", "refresh_mode"})
    is_continuous = not sound or mode_decision(entry, declared).mode is RefreshMode.CONTINUOUS
    table_format = format_of(entry, declared)
    problems = commit_problems(declared.options, is_continuous, bool(formatters(entry, declared)), has_watermark, table_format)
    others = (*option_problems(declared.options, table_format), *foreign_problems(declared.options, table_format))
    for option, problem in (*problems, *others):
        unknown = option not in (*COMMIT_OPTIONS, *OPTIONS)
        place = (*entry.location, "options", option)
        yield entry.document.key_mistake(place, problem) if unknown else entry.mistake("options", problem, option)
