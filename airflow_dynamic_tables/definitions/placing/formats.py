"""Whether the catalog of one table can hold its format, and its stream add to it."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.continuous import StrategyName
from airflow_dynamic_tables.core.schedule.refresh_mode import RefreshMode
from airflow_dynamic_tables.core.tables.formats import streamed_formats
from airflow_dynamic_tables.definitions.building import mode_decision
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, format_of


def misplaced(entry: Entry, declared: TableDeclaration) -> str | None:
    """Why the table cannot be in its catalog; ``None`` when it can, and when the catalogs file does not tell."""
    if entry.formats is None:
        return None
    atomicity = declared.atomicity or entry.defaults.atomicity or "staged"
    return entry.formats.problem(entry.identifier.catalog, format_of(entry, declared), atomicity)


def stream_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """A declared stream that could add no rows to the table; of one that its sources decide on, the stream itself tells."""
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
