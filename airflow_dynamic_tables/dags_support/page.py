"""What the DAG page says about a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable

Readers = Mapping[TableIdentifier, Sequence[TableIdentifier]]


def describe_table(table: DynamicTable, definitions: Definitions, readers: Readers) -> str:
    """What the DAG page says about a table, in Markdown."""
    rows = {
        "Freshness": table.freshness.text,
        "Schedule": f"`{table.cron}` in {table.timezone}" if table.cron else "none",
        "Refresh mode": f"{table.mode.value}: {table.mode_reason}",
        "Format": table.format,
        "Partitioned by": ", ".join(f"`{key}`" for key in table.partition_keys) or "nothing",
        "Reads": ", ".join(_link(name, definitions) for name in table.upstream) or "nothing",
        "Read by": ", ".join(_link(name, definitions) for name in readers.get(table.identifier, ())) or "nothing",
        "Defined in": f"`{table.path.name}`, line {table.line}",
    }
    lines = [f"### {table.identifier}", "", table.comment or "", "", "| | |", "|---|---|"]
    lines += [f"| **{name}** | {value} |" for name, value in rows.items()]
    return "\n".join([*lines, "", "```sql", table.query.rstrip(), "```", ""])


def _link(name: TableIdentifier, definitions: Definitions) -> str:
    return f"[{name}](dags/{name.workflow_id})" if name in definitions.tables else str(name)
