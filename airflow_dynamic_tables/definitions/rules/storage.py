"""Validation of table options: partitions, storage in a server, and options without effect."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.formats import streamed_formats
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule import RefreshMode, StrategyName
from airflow_dynamic_tables.core.sinks import OPTIONS, option_problems
from airflow_dynamic_tables.core.streaming.partition_commits import OPTIONS as COMMIT_OPTIONS
from airflow_dynamic_tables.core.streaming.partition_commits import commit_problems
from airflow_dynamic_tables.definitions.building import formatters, mode_decision
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, format_of
from airflow_dynamic_tables.definitions.rules.foreign_options import foreign_problems


def option_mistakes(entry: Entry, declared: TableDeclaration, has_watermark: bool) -> Iterator[Mistake]:
    """Yield mistakes in the options of a table, except date formatters; an unknown option is reported at its key.

    :param has_watermark: whether partitions of a source that it reads may define a watermark.
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


def misplaced(entry: Entry, declared: TableDeclaration) -> str | None:
    """Return why the catalog cannot hold the table; ``None`` when it can, or the catalogs file does not determine it."""
    if entry.formats is None:
        return None
    atomicity = declared.atomicity or entry.defaults.atomicity or "staged"
    return entry.formats.problem(entry.identifier.catalog, format_of(entry, declared), atomicity)


def stream_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of a declared stream that cannot append to the table.

    Mistakes that depend on its sources are found by the stream itself.
    """
    continuous = declared.continuous.over(entry.defaults.continuous).built()
    table_format, fitting = format_of(entry, declared), streamed_formats()
    if continuous.strategy is not StrategyName.STREAM or table_format in fitting:
        return
    if mode_decision(entry, declared).mode is RefreshMode.CONTINUOUS:
        instead = f"use format {' | '.join(fitting)}, or 'strategy: {StrategyName.MICRO_REFRESH}'"
        message = f"a stream adds rows in one step, which format {table_format} cannot; {instead}"
        if declared.continuous.strategy is not None:
            yield entry.mistake("continuous", message, "strategy")
        else:
            yield entry.mistake("format" if declared.format else "name", message)
