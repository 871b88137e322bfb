"""Results of operations as records: dataclass fields, as shown by REST, ``-o json`` and SQL statements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet

_UNCHANGED = frozenset({NoneType, bool, int, str})
"""Types of most values; an enumeration of strings is a type of its own."""


def items(value: Any) -> Mapping[Any, Any]:
    """The fields of a dataclass, not converted; a mapping is returned unchanged."""
    return value if isinstance(value, Mapping) else {name: getattr(value, name) for name in _names(value.__class__)}


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def plain(value: Any) -> Any:
    """A value in JSON and YAML types: dataclasses and mappings as dicts, sequences as lists, times as ISO 8601."""
    if type(value) in _UNCHANGED:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PartitionSet):
        return value.to_plain()
    if isinstance(value, TableIdentifier):
        return str(value)
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if is_dataclass(value) or isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in items(value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else str(value)
