"""``init``: a project to begin with."""

from __future__ import annotations

import shlex
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_dynamic_tables.cli.new_project.writing import COMMANDS, write_project
from airflow_dynamic_tables.cli.running import OK


def init(arguments: Namespace) -> int:
    """Write a project whose data end yesterday, and say what to type in it."""
    folder = Path(arguments.into)
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    print("Wrote:", *write_project(folder, yesterday), sep="\n  ")
    change = () if folder.resolve() == Path.cwd() else (f"cd {shlex.quote(str(folder))}",)
    print("", "Next:", *(f"  {command}" for command in (*change, *COMMANDS)), sep="\n")
    print(f"\n{folder / 'README.md'} says what is what, and how it comes into Airflow.")
    return OK
