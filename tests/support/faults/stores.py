"""Tables of every kind that has files, in a store that both Spark and the worker reach."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from airflow_dynamic_tables.clients.files import list_entries
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.exceptions import JobFailedError
from tests.support.faults.cluster_refreshes import Refresh
from tests.support.faults.truth import check_all_settled, content
from tests.support.faults.victims import Attempt, Site, sweep
from tests.support.processes import wait_until

KINDS = ("iceberg", "delta", "hive", "folder")
"""Iceberg and Delta in an ``sql`` catalog, Parquet in a Hive metastore, and a folder of Parquet without atomicity."""

MASTER = "local[2]"

SPECIAL = ("a b", "ä/ö", "100%", "a=b:c", "it's", "..", "a+b", "#?*[x]{y}", "日本", "%20", "a;b")
"""Partition values that paths and URIs spell in different ways."""

_DEFINITION = """
defaults: {{catalog: lake, database: sales, format: {format}, atomicity: {atomicity}}}
dynamic_tables:
- name: revenue
  freshness: 1 day
  partitioned_by: [ds]
  query: |
    {query}
"""


def site_of(kind: str, root: str, home: Path, state: Path, metastore: str = "") -> Site:
    """An empty site whose tables are below a folder of the store.

    :param kind: one of ``KINDS``, or ``orc`` for a folder of ORC.
    :param state: an empty database to copy.
    :param metastore: the URI of a Hive metastore.
    """
    url = f"sqlite:///{shutil.copy(state, home / 'state.db')}"
    if kind != "hive":
        return Site(home, url, root, format="parquet" if kind == "folder" else kind)
    parameters = {"uri": metastore, "warehouse": f"{root}/lake"}
    catalogs = home / "catalogs.yaml"
    catalogs.write_text(
        json.dumps({"catalogs": [{"name": "lake", "is-default": True, "type": "hive", "connection-params": parameters}]})
    )
    return Site(home, url, root, catalogs, "parquet", data=f"{root}/lake")


def is_atomic(site: Site) -> bool:
    """Return whether readers see one version or the next; a folder keeps its last version only."""
    return site.format not in ("parquet", "orc") or site.catalogs is not None


def define(site: Site, query: str) -> None:
    """Define the table of a site by a query."""
    atomicity = "staged" if is_atomic(site) else "none"
    text = _DEFINITION.format(format=site.format, atomicity=atomicity, query=query)
    (site.home / "sales.yaml").write_text(text)


def rows_of(days: dict[str, list[int]]) -> str:
    """The query that returns these rows, in several tasks."""
    rows = [(day.replace("'", "''"), number) for day, numbers in days.items() for number in numbers]
    values = ", ".join(f"('{day}', {number}L)" for day, number in rows) or "('', 0L)"
    return f"SELECT /*+ REPARTITION(3) */ ds, n FROM VALUES {values} AS v(ds, n)" + ("" if rows else " WHERE false")


MANY_FILES = "SELECT cast(id AS STRING) AS ds, id AS n FROM range(0, 500, 1, 4)"
"""A query whose rows take a while to write."""

FIRST = {day: [number, number + 100] for number, day in enumerate(SPECIAL)}
SECOND = {**{day: numbers for day, numbers in FIRST.items() if day != "100%"}, "a b": [7]}


def refresh(site: Site, settings: SparkSettings, token: str, days: dict[str, list[int]], *planned: str) -> list[str]:
    """Refresh by spark-submit; returns the lines of its log."""
    define(site, rows_of(days))
    refreshing = Refresh(site, MASTER, Attempt(token, {}, planned=planned), settings)
    refreshing.version()
    return refreshing.lines


def killed_refresh(site: Site, settings: SparkSettings) -> list[str]:
    """Kill a spark-submit that writes; returns the lines of its log."""
    define(site, MANY_FILES)
    killed = Refresh(site, MASTER, Attempt("killed", {}), settings)
    until_it_writes(site, killed)
    killed.stop()
    assert isinstance(killed.error(), JobFailedError)
    return killed.lines


def check_refreshes(site: Site, settings: SparkSettings) -> list[str]:
    """Refresh a table, refresh two partitions while it is read, and kill a third refresh; returns the lines of their logs."""
    lines = refresh(site, settings, "first", FIRST)
    assert rows(site) == FIRST
    with _read_all_the_time(site) as seen:
        lines += refresh(site, settings, "second", {"a b": [7]}, "a b", "100%")
    assert rows(site) == SECOND
    if is_atomic(site):
        assert all(one in (FIRST, SECOND) for one in seen), "a reader sees one version or the next"
    lines += killed_refresh(site, settings)
    assert rows(site) == SECOND
    check_nothing_is_left(site)
    return lines


def rows(site: Site) -> dict[str, list[int]]:
    with site.open() as workspace:
        return content(workspace)


def check_nothing_is_left(site: Site) -> None:
    sweep(site)
    assert [entry.path for entry in list_entries(site.tables) if "_temporary" in entry.path or "/killed" in entry.path] == []
    if is_atomic(site):
        with site.open() as workspace:
            check_all_settled(site, workspace)


def until_it_writes(site: Site, refreshing: Refresh) -> None:
    """Wait until Spark writes into the stage of a refresh."""

    def writes() -> bool:
        return any("/killed/data/" in f"{entry.path}/" for entry in list_entries(site.tables))

    wait_until(lambda: refreshing.has_ended or writes(), "a file in the stage", 300)
    assert not refreshing.has_ended, refreshing.lines[-40:]


@contextmanager
def _read_all_the_time(site: Site) -> Iterator[list[dict[str, list[int]]]]:
    """Read the table again and again in another thread; yields what it read."""
    seen: list[dict[str, list[int]]] = []
    is_over = threading.Event()
    reader = threading.Thread(target=_read, args=(site, seen, is_over))
    reader.start()
    try:
        yield seen
    finally:
        is_over.set()
        reader.join()


def _read(site: Site, seen: list[dict[str, list[int]]], is_over: threading.Event) -> None:
    while not is_over.wait(0.2):
        with nullcontext() if is_atomic(site) else suppress(FileNotFoundError):  # a file of a folder may go while it is read
            if (found := rows(site)) not in seen:
                seen.append(found)
