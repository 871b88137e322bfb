"""Writing the documentation of a project as static pages: one of all tables, and one for each table."""

from __future__ import annotations

import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.documentation import Documentation

_TEMPLATE = Path(__file__).with_name("documentation_template")
_MARK = '<meta name="generator" content="dynamic-tables docs" />'
"""Marks the pages, so that no other folder is replaced."""


def write_documentation(documentation: Documentation, folder: Path, now: datetime) -> Path:
    """Write the pages into a folder, which replaces an earlier documentation; return the first page.

    :param now: the time of the documented status.
    :raises ConfigurationError: if the folder has other content, or cannot be written; nothing is changed then.
    """
    if not _may_replace(folder):
        raise ConfigurationError(
            f"{folder}: is not a documentation that this command wrote. Name another folder, or an empty one."
        )
    pages = Environment(loader=FileSystemLoader(_TEMPLATE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    pages.filters.update(page_of=_page_of, duration=_duration)
    common = {"mark": _MARK, "now": now, "dynamic": {one.table.identifier for one in documentation.tables}}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
            new = Path(made, "new")
            (new / "tables").mkdir(parents=True)
            shutil.copy(_TEMPLATE / "style.css", new)
            index = pages.get_template("index.html").render(common, documentation=documentation, root="")
            (new / "index.html").write_text(index, encoding="utf-8")
            for one in documentation.tables:
                page = pages.get_template("table.html").render(common, one=one, root="../")
                (new / "tables" / _file_of(one.table.identifier)).write_text(page, encoding="utf-8")
            if folder.exists():
                folder.rename(Path(made, "former"))
            new.rename(folder)
    except OSError as error:
        raise ConfigurationError(f"{folder}: the documentation cannot be written: {error}") from error
    return folder / "index.html"


def _may_replace(folder: Path) -> bool:
    if not folder.exists():
        return True
    index = folder / "index.html"
    return folder.is_dir() and (not any(folder.iterdir()) or (index.is_file() and _MARK in index.read_text(encoding="utf-8")))


def _file_of(table: TableIdentifier) -> str:
    return f"{quote(str(table), safe='')}.html"


def _page_of(table: TableIdentifier) -> str:
    """Return the URL of the page of a table, relative to the first page."""
    return f"tables/{quote(_file_of(table))}"


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else str(timedelta(seconds=seconds))
