"""Writing a new project atomically: all of its files, or none."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path

from airflow_dynamic_tables.exceptions import ConfigurationError

TABLE = "daily_revenue"

COMMANDS = (
    "dynamic-tables validate",
    f"dynamic-tables plan {TABLE}",
    f"dynamic-tables refresh {TABLE} --show",
)

DAYS = 7

_TEMPLATE = Path(__file__).with_name("project_template")
_FILES = (
    "README.md",
    "dags/catalogs.yaml",
    "dags/definitions/sales.yaml",
    "dags/definitions/sales_tests.yaml",
    "dags/dynamic_tables.py",
)
_ORDERS_OF_A_DAY = (("DE", 10), ("FR", 7), ("DE", 4))


def write_project(folder: Path, last_day: date) -> list[Path]:
    """Write a project with one dynamic table, its source and its test into a folder, which is created if necessary.

    :raises ConfigurationError: if one of the files exists, or the folder cannot be written; nothing is written then.
    """
    texts = {folder / name: (_TEMPLATE / name).read_text(encoding="utf-8") for name in _FILES}
    texts[folder / "README.md"] = texts[folder / "README.md"].replace("COMMANDS", "\n    ".join(COMMANDS))
    texts[folder / "data" / "orders.csv"] = _orders(last_day)
    if occupied := [str(file) for file in texts if file.exists() or file.is_symlink()]:
        raise ConfigurationError(f"{', '.join(occupied)}: exists already. Nothing was written; name another folder.")
    _write(texts)
    return list(texts)


def _orders(last_day: date) -> str:
    """Return a CSV of orders for each of the last days; it depends on the last day only."""
    days = [last_day - timedelta(days=DAYS - 1 - number) for number in range(DAYS)]
    lines = [f"{day},{country},{amount + number}" for number, day in enumerate(days) for country, amount in _ORDERS_OF_A_DAY]
    return "\n".join(["ds,country,amount", *lines, ""])


def _write(texts: Mapping[Path, str]) -> None:
    """Create the files; if one of them fails, remove those already created."""
    made: list[Path] = []
    try:
        for file, text in texts.items():
            for parent in reversed(file.parents):
                if not parent.exists():
                    parent.mkdir()
                    made.append(parent)
            with file.open("x", encoding="utf-8") as stream:
                made.append(file)
                stream.write(text)
    except OSError as error:
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()
        raise ConfigurationError(f"{error.filename or file}: {error.strerror}. Nothing was written.") from error
