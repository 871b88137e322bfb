"""The points that a write comes to: the steps of the package, and the calls to the store of a table.

======================  ==============================================================================================
writing                 the job wrote one of its files and not the other
written                 the job wrote all files, but no result
result                  the job wrote its result
holding, held           before and after the stage is recorded as quarantined
swap                    PyIceberg wrote the metadata file; the next statement swaps the table's pointer, or writes the row of
                        a commit in PostgreSQL
swapped                 the statement was run; its transaction is not committed
landed                  the transaction is committed, or the partitions of a Hive table are altered; the caller does not know it
announced               a Hive table has a note that a commit is under way
register, rename        before the row of a new table in PostgreSQL, and before its stage becomes the table
update, create, delete  before such a request to Glue; ``update`` and ``rename``, of an Iceberg REST catalog
======================  ==============================================================================================

The calls to the store count from ``publishing`` on. After ``naming`` they begin with ``naming-``, before ``publishing`` with
``early-``, and after ``published`` with ``late-``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from airflow_dynamic_tables.clients.metastore.client import Metastore

PREFIX = "airflow_dynamic_tables."
SWAPS = ("UPDATE iceberg_tables", 'INSERT INTO "public"."_dynamic_table_commits" (table_name, token, number')
"""How statements begin after which nothing but COMMIT is missing."""


_STATEMENTS = {**dict.fromkeys(SWAPS, "swap"), 'INSERT INTO "public"."_dynamic_tables"': "register"}
_RENAME = re.compile("ALTER TABLE .* RENAME TO ")
_REQUEST = re.compile(
    rb"POST /v1/(?:[^ ]*/)?tables/(?P<name>[^/ ]+) HTTP|X-Amz-Target: AWSGlue\.(?P<call>Update|Create|Delete)Table"
)
_STORE = {"swap", "swapped", "landed", "announced", "register", "rename", "update", "create", "delete"}
_PHASES = {"publishing": "", "naming": "naming-", "published": "late-"}


def watch_steps(reached: Callable[[str], object]) -> None:
    phase = "early-"

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal phase
        if name == "http.client.send" and (request := _request(arguments[1])):
            reached(phase + request)
        elif name.startswith(PREFIX):
            step = name.removeprefix(PREFIX)
            phase = _PHASES.get(step, phase)
            reached(phase + step if step in _STORE else step)

    sys.addaudithook(hook)
    tell_of_swaps()
    _tell_of_metastore()


def _request(data: Any) -> str:
    """Return what a request asks a catalog to change; nothing if it asks for no change."""
    found = _REQUEST.search(data) if isinstance(data, bytes) else None
    if found is None:
        return ""
    return found["call"].decode().lower() if found["call"] else "rename" if found["name"] == b"rename" else "update"


def tell_of_swaps() -> None:
    """Audit events around the swap of a table's pointer, from SQLAlchemy."""
    swapping: list[str] = []

    def before(_: Any, __: Any, statement: str, *___: Any) -> None:
        step = next((step for beginning, step in _STATEMENTS.items() if statement.startswith(beginning)), "")
        if step or _RENAME.match(statement):
            sys.audit(f"{PREFIX}{step or 'rename'}")
        if step == "swap":
            swapping.append(statement)

    def commit(_: Any) -> None:
        if swapping:
            sys.audit(f"{PREFIX}swapped")

    def committed(_: Any) -> None:
        if swapping:
            swapping.clear()
            sys.audit(f"{PREFIX}landed")

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", commit)
    event.listen(Session, "after_commit", committed)


def _tell_of_metastore() -> None:
    """Audit events around the changes of a Hive table."""
    for method, before, after in (("alter_table", "", "announced"), ("alter_partitions", "swap", "landed")):
        setattr(Metastore, method, _told(getattr(Metastore, method), before, after))


def _told(call: Callable[..., None], before: str, after: str) -> Callable[..., None]:
    def told(*arguments: Any) -> None:
        if before:
            sys.audit(f"{PREFIX}{before}")
        call(*arguments)
        sys.audit(f"{PREFIX}{after}")

    return told
