"""``plan``: what a scheduled refresh would do."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.project import definitions, named_tables, schedule_time
from airflow_dynamic_tables.cli.running import OK
from airflow_dynamic_tables.services.planning import preview
from airflow_dynamic_tables.services.workspace import utc_now

_COLUMNS = ("identifier", "refresh_mode", "cron", "timezone", "schedule_time", "partitions")


def plan(arguments: Namespace) -> int:
    """Print what a scheduled refresh of each table would do."""
    tables = named_tables(definitions(arguments), arguments.tables)
    now = utc_now()
    plans = [preview(table, schedule_time(table, arguments.schedule_time, now)) for table in tables]
    if arguments.output != "table" or not arguments.tables:
        output.listing(plans, arguments.output, _COLUMNS)
        return OK
    for number, planned in enumerate(plans):
        print(end="\n" if number else "")
        output.record(replace(planned, statement=f"{planned.statement};"), "table")
    return OK
