"""What commands import. A library that is not needed costs more than the work of most commands, and no test would notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from datetime import timedelta

from airflow_dynamic_tables.cli.main import main
from airflow_dynamic_tables.definitions.cache import Cache

Cache.__init__.__defaults__ = (timedelta(0),)  # files count as settled at once
codes = [main(line.split()) for line in sys.argv[2:]]
imported = [name for name in sys.argv[1].split(",") if name in sys.modules]
sys.exit(0 if set(codes) == {0} and not imported else f"codes {codes}, imported {imported}")
"""

LIBRARIES = ("airflow", "grpc", "pandas", "pyspark")
OF_OTHERS = ("sqlalchemy.dialects.postgresql", "airflow_dynamic_tables.definitions.declarations.file")
"""What only a PostgreSQL database and only ``schema`` need."""


def _run(project: Path, imported: tuple[str, ...], *lines: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(imported), *lines],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("validate --without-spark", ("pyarrow", "pyiceberg", "sqlalchemy")),
        ("validate", ("pyarrow", "pydantic", "pyiceberg", "sqlglot")),
        ("plan", ("pyarrow", "pyiceberg", "sqlalchemy")),
        ("list", ("sqlglot",)),
    ],
)
def test_a_warm_command_imports_what_it_needs(line: str, imported: tuple[str, ...], project: Path) -> None:
    _run(project, (), "validate --without-spark", "create", "validate")
    _run(project, (*LIBRARIES, *OF_OTHERS, *imported), line)
