"""Markdown documentation of tables on the pages of DAGs and tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable, Updates
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX

Readers = Mapping[TableIdentifier, Sequence[TableIdentifier]]

_BACKTICKS = re.compile("`{3,}")


def readers_of(definitions: Definitions) -> Readers:
    """Return the dynamic tables that read each table, sorted; a single pass, because there may be thousands."""
    readers: dict[TableIdentifier, list[TableIdentifier]] = {}
    for identifier, table in sorted(definitions.tables.items()):
        for parent in table.upstream:
            readers.setdefault(parent, []).append(identifier)
    return readers


def describe_table(table: DynamicTable, definitions: Definitions, readers: Readers | None = None) -> str:
    """Return the documentation of a table in Markdown.

    :param readers: the dynamic tables that read each table; if omitted, the page does not list them.
    """
    read_by = None if readers is None else ", ".join(_link(name, definitions) for name in readers.get(table.identifier, ()))
    rows = {
        "Freshness": table.freshness.text,
        # Airflow shows the first lines, and collapses the rest.
        "Reads": ", ".join(_link(name, definitions) for name in table.upstream) or "nothing",
        "Read by": "nothing" if read_by == "" else read_by,
        "Schedule": f"`{table.cron}` in {table.timezone}" if table.cron else "none",
        **({"Refreshed on": f"updates of {_listed(table.on, definitions)}"} if table.on else {}),
        **({"Waits for": ", ".join(f"`{awaited}`" for awaited in table.wait_for)} if table.wait_for else {}),
        "Refresh mode": f"{table.mode.value}: {table.mode_reason}",
        "Format": table.format,
        "Partitioned by": ", ".join(f"`{key}`" for key in table.partition_keys) or "nothing",
        "Defined in": f"`{table.file}`, line {table.line}",
    }
    lines = [f"### {table.identifier}", "", table.comment or "", "", "| | |", "|---|---|"]
    lines += [f"| **{name}** | {value} |" for name, value in rows.items() if value is not None]
    if table.text:
        lines += ["", _fenced("sql" if table.path.suffix == SQL_SUFFIX else "yaml", table.text)]
    # With anchors and query files, the entry alone does not contain the query.
    if any(line.strip() not in table.text for line in table.query.splitlines()):
        lines += ["", _fenced("sql", table.query.rstrip())]
    return "\n".join([*lines, ""])


def _listed(updates: Updates, definitions: Definitions) -> str:
    named = (_link(asset.table, definitions) if asset.table else f"`{asset}`" for asset in updates.assets)
    return (" and " if updates.every else " or ").join(named)


def _link(name: TableIdentifier, definitions: Definitions) -> str:
    return f"[{name}](dags/{definitions.tables[name].workflow_id})" if name in definitions.tables else str(name)


def _fenced(language: str, text: str) -> str:
    fence = "`" * max((len(run) + 1 for run in _BACKTICKS.findall(text)), default=3)
    return f"{fence}{language}\n{text}\n{fence}"
