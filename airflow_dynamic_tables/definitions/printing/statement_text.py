"""Declarations as statements: CREATE DYNAMIC TABLE."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.core.identifiers import quote, split_name
from airflow_dynamic_tables.core.partitioning import hidden_key
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.definitions.printing.declaring import declaration_of
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.documents import is_option, is_yaml
from airflow_dynamic_tables.definitions.statements.grammar import is_plain_name
from airflow_dynamic_tables.definitions.statements.lexing import tokens_of
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import CreateDynamicTable
from airflow_dynamic_tables.exceptions import UnsupportedError

_CLAUSES = ("name", "query", "columns", "partitioned_by", "comment", "freshness", "refresh_mode")
"""What does not stand in WITH."""

_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON takes as it is, and YAML only as an escape."""


def statement_of(table: DynamicTable) -> str:
    """The statement that declares the table, with its semicolon.

    :raises UnsupportedError: when its query cannot stand in a statement.
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
    """The columns that have comments, in the order in which the query returns them."""
    columns: Mapping[str, str] = said.get("columns", {})
    outputs = analyse(said["query"]).outputs if columns else None
    return [(column, columns[column]) for column in outputs or columns if column is not None and column in columns]


def _options(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What stands in WITH: options of the table by their names, if nothing else has them, and settings."""
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
    """A string that the parser of statements, and Spark's, read as this text."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\r", "\\r")
    return f"'{escaped}'"


def ended(statement: str) -> str:
    """A statement with its semicolon, which no comment at its end takes in."""
    *_, last, _ = (None, *tokens_of(statement))
    return f"{statement}\n;" if last is not None and statement[last.end :].strip() else f"{statement};"


def _one_statement(query: str) -> str:
    """A query without its semicolon, and what stands behind that."""
    end = next((token.start for token in tokens_of(query) if token.word == ";"), len(query))
    return query[:end].rstrip()
