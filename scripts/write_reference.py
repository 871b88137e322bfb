"""Write what is derived: the reference of the keys of a dynamic table in docs/definitions.md, and the index of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from airflow_dynamic_tables.cli.command_index import INDEX, index
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import KEYS, Key

PAGE = Path(__file__).parents[1] / "docs" / "definitions.md"
BEGIN, END = "<!-- scripts/write_reference.py writes from here -->", "<!-- to here -->"


def with_reference(page: str) -> str:
    """The text of the page, with the reference of these declarations."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join((before + BEGIN, *_lines(), END + after))


def _lines() -> Iterator[str]:
    by_name = {each.name: each.key for each in KEYS if each.name in TableDeclaration.model_fields}
    others = dict.fromkeys(TableDeclaration.model_fields.keys() - by_name.keys(), Key())
    keys = {name: by_name.pop(name) for name in ("name", "query")} | others | by_name
    yield from ("", "| key | meaning | in `defaults` |", "|---|---|---|")
    for name, key in keys.items():
        if key.part is None:
            yield f"| `{name}` | {_meaning(name, key)} | {'yes' if name in DefaultsDeclaration.model_fields else ''} |"
    yield from ("", "These are Airflow's, by its names; all may be in `defaults`:", "")
    yield from ("| key | meaning | setting of the |", "|---|---|---|")
    for name, key in keys.items():
        if key.part is not None:
            yield f"| `{name}` | {_meaning(name, key)} | {key.part.owner} |"
    yield ""


def _meaning(name: str, key: Key) -> str:
    said = " ".join((TableDeclaration.model_fields[name].description or "").split())
    return f"{said} [More]({key.see})" if key.see else said


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text()))
    INDEX.write_text(index(), encoding="utf-8")
