"""Declarations as a file of definitions in YAML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.printing.declaring import declaration_of


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are read by people, where YAML can."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - two equal lists are two lists
        """Nothing is written as an alias."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_of(tables: Iterable[DynamicTable]) -> str:
    """A file of definitions that declares these tables."""
    entries = [declaration_of(table) for table in tables]
    text: str = yaml.dump(
        {"dynamic_tables": entries}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120
    )
    return text
