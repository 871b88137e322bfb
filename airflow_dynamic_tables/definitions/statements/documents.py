"""CREATE statements as the same data that a YAML file of definitions is, with the same places for what is wrong with it.

What stands in WITH under the name of a setting is that setting; every name with a dot is an option of the table. A value that
begins with ``[``, ``{`` or ``"`` is YAML, any other is a text as it stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.statements.lexing import string_value
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import CreateDynamicTable, CreateView, Name, Piece
from airflow_dynamic_tables.yaml_files.documents import Document, place_of
from airflow_dynamic_tables.yaml_files.parsing import (
    LIST_TAG,
    MAPPING_TAG,
    TEXT_TAG,
    Problem,
    compose_value,
    document_of,
    plain_tag,
)

_STRUCTURED = ("[", "{", '"')
"""How a value begins that is YAML."""

_Pair = tuple[yaml.Node, yaml.Node]


def parse_statements(path: Path, text: str) -> tuple[Document | None, list[Mistake]]:
    """The definitions of a file of statements, and what is wrong with it; ``None`` when it declares nothing."""
    script = parse_script(text, path)
    mistakes = list(script.mistakes)
    if not script.statements and not mistakes:
        return None, [Mistake(path, 1, 1, "is empty; declare a dynamic table, or remove the file")]
    nodes = _Nodes(path, text)
    tables: list[yaml.Node] = []
    views: list[yaml.Node] = []
    for statement in script.statements:
        if isinstance(statement, CreateDynamicTable):
            node, problems = nodes.of_table(statement)
            mistakes += problems
            tables += [] if problems else [node]
        elif isinstance(statement, CreateView):
            views.append(nodes.of_view(statement))
        else:
            message = "a file of definitions has only CREATE DYNAMIC TABLE and CREATE VIEW; give others to 'dynamic-tables sql'"
            mistakes += [nodes.mistake(statement.start, message)]
    root = nodes.mapping(
        0,
        len(text),
        [
            (nodes.scalar("views", 0, 0), nodes.sequence(0, len(text), views)),
            (nodes.scalar("dynamic_tables", 0, 0), nodes.sequence(0, len(text), tables)),
        ],
    )
    document, more = document_of(path, text, root)
    return document, mistakes + more


def is_option(key: str) -> bool:
    """Whether what stands in WITH under that name is an option of the table; else it is a setting, or wrong."""
    setting, dot, _ = key.partition(".")
    return bool(dot) and setting not in TableDeclaration.model_fields


def is_yaml(value: str) -> bool:
    """Whether a value in WITH is no text as it stands: it is YAML, or a truth value."""
    return value.startswith(_STRUCTURED) or plain_tag(value) != TEXT_TAG


class _Nodes:
    """Makes the nodes that PyYAML would make, at places of a text of statements."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]

    def of_table(self, statement: CreateDynamicTable) -> tuple[yaml.Node, list[Mistake]]:
        """The entry of a dynamic table, and what is wrong with the values in WITH."""
        pairs = list(self._clauses(statement))
        options: list[_Pair] = []
        mistakes: list[Mistake] = []
        for pair in statement.options.pairs if statement.options else ():
            key = self._string(pair.key)
            if is_option(pair.key.value):
                options.append((key, self._string(pair.value)))
                continue
            setting, dot, _ = pair.key.value.partition(".")
            if dot:
                message = f"unknown key {pair.key.value!r}; what is below {setting!r} stands in its value: '{setting}' = '{{…}}'"
                mistakes.append(self.mistake(pair.key.start, message))
                continue
            value, problem = self._value(pair.value)
            mistakes += problem
            if pair.key.value == "options" and isinstance(value, yaml.MappingNode):
                options += value.value
            else:
                pairs.append((key, value))
        if options and statement.options is not None:
            start = statement.options.start
            pairs.append((self.scalar("options", start, start), self.mapping(start, statement.options.end, options)))
        return self.mapping(statement.start, statement.end, pairs), mistakes

    def of_view(self, statement: CreateView) -> yaml.Node:
        """The entry of a view."""
        pairs = [self._name(statement.name), self._query(statement.query)]
        if statement.comment is not None:
            pairs.append(
                (self.scalar("comment", statement.comment.start, statement.comment.end), self._string(statement.comment))
            )
        return self.mapping(statement.start, statement.end, pairs)

    def _clauses(self, statement: CreateDynamicTable) -> Iterator[_Pair]:
        yield self._name(statement.name)
        yield self._query(statement.query)
        if statement.comment is not None:
            yield self._key("comment", statement.comment), self._string(statement.comment)
        for key, piece in (("freshness", statement.freshness), ("refresh_mode", statement.refresh_mode)):
            if piece is not None:
                yield self._key(key, piece), self.scalar(piece.value, piece.start, piece.end)
        if statement.partitioned_by:
            keys = [self.scalar(piece.value, piece.start, piece.end) for piece in statement.partitioned_by]
            first, last = statement.partitioned_by[0], statement.partitioned_by[-1]
            yield self._key("partitioned_by", first), self.sequence(first.start, last.end, keys)
        if statement.columns:
            columns = [(self._key(item.name.value, item.name), self._string(item.comment)) for item in statement.columns]
            first = statement.columns[0].name
            yield self._key("columns", first), self.mapping(first.start, first.end, columns)

    def _name(self, name: Name) -> _Pair:
        return self.scalar("name", name.start, name.end), self.scalar(str(name), name.start, name.end)

    def _query(self, query: Piece) -> _Pair:
        return self._key("query", query), self.scalar(query.value, query.start, query.end)

    def _key(self, key: str, piece: Piece) -> yaml.Node:
        return self.scalar(key, piece.start, piece.end)

    def _string(self, piece: Piece | None) -> yaml.Node:
        """A text as it stands; nothing for a column without a comment."""
        return self.scalar("", 0, 0) if piece is None else self.scalar(piece.value, piece.start, piece.end, "'")

    def _value(self, piece: Piece) -> tuple[yaml.Node, list[Mistake]]:
        """The value of a setting."""
        if not piece.value.startswith(_STRUCTURED):
            tag = plain_tag(piece.value)
            return yaml.ScalarNode(tag, piece.value, self._mark(piece.start), self._mark(piece.end), style="'"), []
        inner = string_value(self._text[piece.start : piece.end])[1]
        places = [*(piece.start + place for place in inner), piece.end - 1]
        node = compose_value(piece.value)
        if isinstance(node, Problem):
            return self._string(piece), [self.mistake(places[min(node.offset, len(places) - 1)], node.message)]
        self._move(node, places)
        return node, []

    def _move(self, node: yaml.Node, places: list[int]) -> None:
        """Set the marks of a node, which count from the beginning of its value, to the places in the file."""
        waiting, seen = [node], set[int]()
        while waiting:
            current = waiting.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            start, end = current.start_mark.index, current.end_mark.index
            current.start_mark = self._mark(places[start])
            current.end_mark = self._mark(places[end - 1] + 1 if end > start else places[start])
            if isinstance(current, yaml.MappingNode):
                waiting += (each for pair in current.value for each in pair)
            elif isinstance(current, yaml.SequenceNode):
                waiting += current.value

    def scalar(self, value: str, start: int, end: int, style: str | None = None) -> yaml.Node:
        """A text."""
        return yaml.ScalarNode(TEXT_TAG, value, self._mark(start), self._mark(end), style=style)

    def sequence(self, start: int, end: int, items: list[yaml.Node]) -> yaml.Node:
        """A list."""
        return yaml.SequenceNode(LIST_TAG, items, self._mark(start), self._mark(end))

    def mapping(self, start: int, end: int, pairs: list[_Pair]) -> yaml.Node:
        """A mapping."""
        return yaml.MappingNode(MAPPING_TAG, pairs, self._mark(start), self._mark(end))

    def mistake(self, offset: int, message: str) -> Mistake:
        """A mistake at an offset of the text."""
        mark = self._mark(offset)
        return Mistake(self._path, *place_of(mark), message)

    def _mark(self, offset: int) -> Any:
        line = bisect_right(self._lines, offset) - 1
        return yaml.Mark(str(self._path), offset, line, offset - self._lines[line], None, 0)
