"""``plan``: what a scheduled refresh would do."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from datetime import UTC, datetime

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, named_tables, schedule_time
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.services.previewing import TablePlan, preview

_COLUMNS = ("identifier", "refresh_mode", "cron", "timezone", "schedule_time", "partitions")


def plan(arguments: Namespace) -> int:
    """Print what a scheduled refresh of each table would do."""
    defined, sound = definitions(arguments)
    tables = named_tables(defined, arguments.tables)
    now = datetime.now(UTC)
    plans = [preview(table, schedule_time(table, arguments.schedule_time, now)) for table in tables]
    if arguments.output != "table":
        output.listing(plans, arguments.output)
    elif not arguments.tables:
        output.listing([_readable(planned) for planned in plans], "table", _COLUMNS)
    else:
        for number, planned in enumerate(plans):
            print(end="\n" if number else "")
            output.record(_readable(planned), "table")
    return OK if sound or arguments.tables else FAILED


def _readable(planned: TablePlan) -> dict[str, object]:
    return {**asdict(planned), "partitions": planned.partitions or "the whole table"}
