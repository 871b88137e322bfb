"""Conversion of a dynamic table back to its declaration, in YAML or SQL; default values are omitted.

The result states the resolved meaning, wherever the table was declared. Expectations that are shorthand for a predicate are
printed as predicates, and views of the definitions that the query reads are inlined.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.cron import cron_for
from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name, quote, split_name
from airflow_dynamic_tables.core.partition_transforms import hidden_key
from airflow_dynamic_tables.core.refresh.expectations import Expectation, RowCount
from airflow_dynamic_tables.core.refresh.sources import AwaitedData
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode, decide
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import KEYS, NO_SCHEDULE, AssetReference, Callback, DynamicTable, KeyField, Updates
from airflow_dynamic_tables.definitions.queries.editing import expand, unclear_names
from airflow_dynamic_tables.definitions.queries.text import Target, analyse
from airflow_dynamic_tables.definitions.statements.documents import is_option, is_yaml
from airflow_dynamic_tables.definitions.statements.grammar import is_plain_name
from airflow_dynamic_tables.definitions.statements.lexing import tokens_of
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import CreateDynamicTable
from airflow_dynamic_tables.definitions.validating import takes_variables
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.redaction import HIDDEN
from airflow_dynamic_tables.yaml_files.variables import escaped, scalars


def declaration_of(table: DynamicTable) -> dict[str, Any]:
    """Return the entry that declares the table below ``dynamic_tables``: strings, numbers, booleans, lists and mappings.

    All names are full, and no environment variable is referenced.
    """
    said = {each.name: _printed(each, table) for each in KEYS if each.name not in ("name", "query")}
    said = {"name": str(table.identifier), **said, "query": full_query(table)}
    said = {key: value for key, value in said.items() if value is not None}
    return {key: _escaped(value) if takes_variables(TableDeclaration, key) else value for key, value in said.items()}


def hidden_settings(table: DynamicTable) -> list[str]:
    """Return the dotted names of the settings that a catalog stores only as masked secrets."""
    every = scalars(declaration_of(table), ())
    return [
        ".".join(map(str, location)) for location, text in every if HIDDEN in text and location[0] not in ("query", "comment")
    ]


def full_query(table: DynamicTable) -> str:
    """Return the query with full table names, otherwise as written unless it reads a view of the definitions."""
    analysis = analyse(table.query)
    own = (table.identifier.catalog, table.identifier.database)
    tables = {name: name for name in table.upstream}
    text = analysis.text
    for reference in reversed(analysis.references):
        missing = own[: 3 - len(reference.parts)]
        name = TableIdentifier(*missing, *(part.text for part in reference.parts))
        if name not in tables:
            return table.expanded_query
        if missing:
            start = reference.parts[0].start
            text = f"{text[:start]}{join_name(*missing)}.{text[start:]}"
    if text == analysis.text:
        return table.query
    return text if _expanded(text) == table.expanded_query else table.expanded_query


def _expanded(query: str) -> str | None:
    """Return the expansion of a query that contains only full names."""
    analysis = analyse(query)
    names = [TableIdentifier(*(part.text for part in reference.parts)) for reference in analysis.references]
    targets = [Target(name, name.sql) for name in names]
    return None if analysis.problems or unclear_names(analysis, targets) else expand(analysis, targets)


def _printed(each: KeyField, table: DynamicTable) -> Any:
    """Return the value of a key; ``None`` if it is omitted."""
    if each.name in _PRINTED:
        return _PRINTED[each.name](table)
    value = getattr(table, each.field)
    return None if value == each.default else _plain(value)


def _freshness(table: DynamicTable) -> str | None:
    derived = decide(table.declared_mode, None)
    is_derived = (derived.mode, derived.freshness, derived.reason) == (table.mode, table.freshness, table.mode_reason)
    return None if is_derived else table.freshness.text


def _schedule(table: DynamicTable) -> str | None:
    is_derived = table.is_continuous or table.cron == _derived_cron(table.freshness)
    return None if is_derived else table.cron or NO_SCHEDULE


def _derived_cron(freshness: Freshness) -> str | None:
    try:
        return cron_for(freshness)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return Freshness(int(value.total_seconds())).text
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Callback):
        return value.path if value.arguments is None else {"notifier": value.path, "arguments": _plain(value.arguments)}
    if dataclasses.is_dataclass(value):
        every = ((field.name, getattr(value, field.name), _default(field)) for field in dataclasses.fields(value))
        return {name: _plain(item) for name, item, default in every if item != default}
    return value


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _kept_versions(name: str, table: DynamicTable) -> Any:
    return None if table.retention == DEFAULT_RETENTION else _plain(getattr(table.retention, name))


def _updates(on: Updates | None) -> Any:
    assets = [_asset(asset) for asset in on.assets] if on is not None else None
    return {"all": assets} if on is not None and on.every else assets


def _asset(asset: AssetReference) -> Any:
    return {"name": asset.name} if asset.name is not None else str(asset)


def _awaited(awaited: AwaitedData) -> dict[str, Any]:
    if awaited.source is None:
        return {"path": awaited.text}
    said: dict[str, Any] = {"source": str(awaited.source)}
    if awaited.text:
        said["partition"] = awaited.text
    if awaited.rows is not None:
        said["rows"] = awaited.rows.least
    return said


def _expectation(expectation: Expectation) -> dict[str, Any]:
    if (relationship := expectation.relationship) is not None:
        columns, to_columns = list(relationship.columns), list(relationship.to_columns)
        said: dict[str, Any] = {"relationship": columns, "to": relationship.to, "to_columns": to_columns}
    else:
        said = {"unique": list(expectation.unique)} if expectation.unique else {"predicate": expectation.predicate}
    across = {"across_partitions": True} if expectation.across_partitions else {}
    return {"name": expectation.name, "action": expectation.action.value, **said, **across}


def _row_count(bounds: RowCount) -> dict[str, Any]:
    said = {key: getattr(bounds, key) for key in ("min", "max") if getattr(bounds, key) is not None}
    for key in ("max_decrease", "max_increase"):
        share = getattr(bounds, key)
        if share is not None:
            said[key] = _percentage(share)
    return {"name": bounds.name, "action": bounds.action.value, "row_count": said}


def _percentage(share: float) -> str:
    exact = Decimal(repr(share)) * 100
    return f"{exact.normalize():f}%"


_PRINTED: Mapping[str, Callable[[DynamicTable], Any]] = {
    "freshness": _freshness,
    "refresh_mode": lambda table: None if table.declared_mode is RefreshMode.AUTO else table.declared_mode.value.lower(),
    "schedule": _schedule,
    "on": lambda table: _updates(table.on),
    "wait_for": lambda table: [_awaited(awaited) for awaited in table.wait_for] or None,
    "expectations": lambda table: [*map(_expectation, table.expectations), *map(_row_count, table.row_counts)] or None,
    "row_counts": lambda _: None,
    **{name: partial(_kept_versions, name) for name in ("versions_to_keep", "version_max_age")},
}
"""Printers of the keys whose YAML form differs from their field."""


def _escaped(value: Any) -> Any:
    """Escape a value so that nothing in it is read as an environment variable."""
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return escaped(value) if isinstance(value, str) else value


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as block scalars where YAML can."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - two equal lists are two lists
        """Disable YAML aliases."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_of(tables: Iterable[DynamicTable]) -> str:
    """Return a definitions file that declares these tables."""
    entries = [declaration_of(table) for table in tables]
    text: str = yaml.dump(
        {"dynamic_tables": entries}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120
    )
    return text


_CLAUSES = ("name", "query", "columns", "partitioned_by", "comment", "freshness", "refresh_mode")
"""Keys that are not written in WITH."""

_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON accepts unescaped and YAML only as an escape."""


def statement_of(table: DynamicTable) -> str:
    """Return the statement that declares the table, with its semicolon.

    :raises UnsupportedError: when its query cannot be embedded in a statement.
    """
    said = declaration_of(table)
    query = _one_statement(said["query"])
    text = ended("\n".join([*_head(said), f"AS\n{query}"]))
    script = parse_script(text, Path())
    statements = script.statements
    if len(statements) != 1 or not isinstance(statements[0], CreateDynamicTable) or "\r" in text:
        raise UnsupportedError(f"{table.identifier} cannot be said as a statement; export it as YAML.")
    return text


def _head(said: Mapping[str, Any]) -> Iterator[str]:
    name = ".".join(part if is_plain_name(part) else quote(part) for part in split_name(said["name"]))
    columns = ", ".join(f"{_column(column)} COMMENT {_literal(text)}" for column, text in _columns(said))
    yield f"CREATE DYNAMIC TABLE {name}{f' ({columns})' if columns else ''}"
    if "comment" in said:
        yield f"COMMENT {_literal(said['comment'])}"
    if "partitioned_by" in said:
        yield f"PARTITIONED BY ({', '.join(map(_key, said['partitioned_by']))})"
    options = list(_options(said))
    if options:
        pairs = ",\n".join(f"  {_literal(key)} = {_literal(value)}" for key, value in options)
        yield f"WITH (\n{pairs}\n)"
    if "freshness" in said:
        number, unit = said["freshness"].split()
        yield f"FRESHNESS = INTERVAL '{number}' {unit.removesuffix('s').upper()}"
    if "refresh_mode" in said:
        yield f"REFRESH_MODE = {said['refresh_mode'].upper()}"


def _columns(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the columns that have comments, in the order of the query's outputs."""
    columns: Mapping[str, str] = said.get("columns", {})
    outputs = analyse(said["query"]).outputs if columns else None
    return [(column, columns[column]) for column in outputs or columns if column is not None and column in columns]


def _options(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the entries of WITH: options of the table by name unless a setting has that name, and settings."""
    others: dict[str, str] = {}
    for key, value in said.get("options", {}).items():
        if is_option(key):
            yield key, value
        else:
            others[key] = value
    if others:
        yield "options", _json(others)
    for key, value in said.items():
        if key in TableDeclaration.model_fields and key not in (*_CLAUSES, "options"):
            yield key, _setting(value)


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _json(value) if is_yaml(value) else value
    return str(value) if isinstance(value, int) else _json(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def _key(key: str) -> str:
    hidden = hidden_key(key)
    return _column(key) if hidden is None else str(replace(hidden, column=_column(hidden.column)))


def _column(name: str) -> str:
    return name if is_plain_name(name) else quote(name)


def _literal(text: str) -> str:
    """Return a string literal that the statement parser and Spark read as this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\r", "\\r")
    return f"'{escaped}'"


def ended(statement: str) -> str:
    """Return a statement with its semicolon, on a new line if the statement ends with a comment."""
    *_, last, _ = (None, *tokens_of(statement))
    return f"{statement}\n;" if last is not None and statement[last.end :].strip() else f"{statement};"


def _one_statement(query: str) -> str:
    """Return a query without its semicolon and anything after it."""
    end = next((token.start for token in tokens_of(query) if token.word == ";"), len(query))
    return query[:end].rstrip()
