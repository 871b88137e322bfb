"""Write what is derived: the reference of the keys of a dynamic table in docs/definitions.md, and the index of the commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_dynamic_tables.cli.command_index import INDEX, index
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import KEYS, Key

PAGE = Path(__file__).parents[1] / "docs" / "definitions.md"
FIRST = ("name", "query", "freshness", "partitioned_by", "options", "comment", "expectations", "on_failure_callback", "format")
"""Keys with which a table can live for a long time; all others are below a fold."""

BEGIN, END = "<!-- scripts/write_reference.py writes from here -->", "<!-- to here -->"


def with_reference(page: str) -> str:
    """The text of the page, with the reference of these declarations."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join((before + BEGIN, *_lines(), END + after))


def _lines() -> Iterator[str]:
    by_name = {each.name: each.key for each in KEYS if each.name in TableDeclaration.model_fields}
    keys = {name: Key() for name in TableDeclaration.model_fields if name not in by_name} | by_name
    first = {name: keys.pop(name) for name in FIRST}
    yield from ("", *_table(first))
    yield from ("", "<details>", "<summary>All other keys of a table</summary>", "")
    yield from (*_table({name: key for name, key in keys.items() if key.part is None}), "", "</details>")
    yield from ("", "<details>", "<summary>Settings of Airflow, by its names; all may be in <code>defaults</code></summary>", "")
    yield from ("| key | meaning | setting of the |", "|---|---|---|")
    for name, key in keys.items():
        if key.part is not None:
            yield f"| `{name}` | {_meaning(name, key)} | {key.part.owner} |"
    yield from ("", "</details>", "")


def _table(keys: Mapping[str, Key]) -> Iterator[str]:
    yield from ("| key | meaning | in `defaults` |", "|---|---|---|")
    for name, key in keys.items():
        yield f"| `{name}` | {_meaning(name, key)} | {'yes' if name in DefaultsDeclaration.model_fields else ''} |"


def _meaning(name: str, key: Key) -> str:
    said = " ".join((TableDeclaration.model_fields[name].description or "").split())
    return f"{said} [More]({key.see})" if key.see else said


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text()))
    INDEX.write_text(index(), encoding="utf-8")
