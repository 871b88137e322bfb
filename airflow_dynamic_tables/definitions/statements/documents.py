"""Converts CREATE statements to the node tree of a YAML definitions file, with source positions for error messages.

In WITH, a key that is the name of a setting sets that setting; every key with a dot is an option of the table. A value that
begins with ``[``, ``{`` or ``"`` is YAML, any other value is a literal string.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.identifiers import TableIdentifier, literal
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration
from airflow_dynamic_tables.definitions.statements.lexing import string_value
from airflow_dynamic_tables.definitions.statements.parsing import parse_script
from airflow_dynamic_tables.definitions.statements.values import (
    AlterDynamicTable,
    AlterQuery,
    CreateDynamicTable,
    CreateView,
    Name,
    Pair,
    PairList,
    Piece,
    ResetOptions,
    SetFreshness,
    SetOptions,
    SetRefreshMode,
)
from airflow_dynamic_tables.yaml_files.documents import Document, place_of
from airflow_dynamic_tables.yaml_files.parsing import (
    LIST_TAG,
    MAPPING_TAG,
    TEXT_TAG,
    YamlProblem,
    compose_value,
    document_of,
    plain_tag,
)

_STRUCTURED = ("[", "{", '"')
"""First characters of a value that is YAML."""

_Pair = tuple[yaml.Node, yaml.Node]


def parse_statements(path: Path, text: str) -> tuple[Document | None, list[Mistake]]:
    """Return the definitions in a file of statements, and its mistakes; ``None`` when it declares nothing."""
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
    """Return whether a key in WITH is an option of the table; otherwise it is a setting, or wrong."""
    setting, dot, _ = key.partition(".")
    return bool(dot) and setting not in TableDeclaration.model_fields


def is_yaml(value: str) -> bool:
    """Return whether a value in WITH is YAML or a boolean, not a literal string."""
    return value.startswith(_STRUCTURED) or plain_tag(value) != TEXT_TAG


class _Nodes:
    """Builds PyYAML nodes whose marks point into the text of the statements."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]

    def of_table(self, statement: CreateDynamicTable) -> tuple[yaml.Node, list[Mistake]]:
        """Return the entry of a dynamic table, and the mistakes in its WITH values."""
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
        """Return the entry of a view."""
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
        """Return a literal string node; a null node for a column without a comment."""
        return self.scalar("", 0, 0) if piece is None else self.scalar(piece.value, piece.start, piece.end, "'")

    def _value(self, piece: Piece) -> tuple[yaml.Node, list[Mistake]]:
        """Return the value of a setting, and its mistakes."""
        if not piece.value.startswith(_STRUCTURED):
            tag = plain_tag(piece.value)
            return yaml.ScalarNode(tag, piece.value, self._mark(piece.start), self._mark(piece.end), style="'"), []
        inner = string_value(self._text[piece.start : piece.end])[1]
        places = [*(piece.start + place for place in inner), piece.end - 1]
        node = compose_value(piece.value)
        if isinstance(node, YamlProblem):
            return self._string(piece), [self.mistake(places[min(node.offset, len(places) - 1)], node.message)]
        self._move(node, places)
        return node, []

    def _move(self, node: yaml.Node, places: list[int]) -> None:
        """Translate the marks of a node from offsets within its value to offsets within the file."""
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
        """Return a scalar node."""
        return yaml.ScalarNode(TEXT_TAG, value, self._mark(start), self._mark(end), style=style)

    def sequence(self, start: int, end: int, items: list[yaml.Node]) -> yaml.Node:
        """Return a sequence node."""
        return yaml.SequenceNode(LIST_TAG, items, self._mark(start), self._mark(end))

    def mapping(self, start: int, end: int, pairs: list[_Pair]) -> yaml.Node:
        """Return a mapping node."""
        return yaml.MappingNode(MAPPING_TAG, pairs, self._mark(start), self._mark(end))

    def mistake(self, offset: int, message: str) -> Mistake:
        """Return a mistake at an offset of the text."""
        mark = self._mark(offset)
        return Mistake(self._path, *place_of(mark), message)

    def _mark(self, offset: int) -> Any:
        line = bisect_right(self._lines, offset) - 1
        return yaml.Mark(str(self._path), offset, line, offset - self._lines[line], None, 0)


Edit = tuple[int, int, str]
"""Start offset, end offset and replacement text."""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Apply non-overlapping edits to a text."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def altered(text: str, declared: CreateDynamicTable, alter: AlterDynamicTable, said: str) -> str:
    """Apply an ALTER statement to the text of the file that declares the table.

    :param alter: a statement that changes the declaration, other than a rename.
    """
    return edited(text, _edits(declared, alter, said))


def renamed(text: str, declared: CreateDynamicTable, name: TableIdentifier, former: str | None = None) -> str:
    """Rename the declared table in the text of its file.

    :param former: the former name of the table, if the declaration has to record it so that the data follow the rename.
    """
    said = [] if former is None else _with_options(declared, {"renamed_from": ("'renamed_from'", literal(former))})
    return edited(text, [(declared.name.start, declared.name.end, str(name)), *said])


def without(text: str, declared: CreateDynamicTable) -> str:
    """Remove a declaration, its semicolon and the following line end from the text of a file."""
    end = declared.end
    rest = text[end:].lstrip()
    if rest.startswith(";"):
        end = len(text) - len(rest) + 1
    if text[end:].startswith("\n"):
        end += 1
    return text[: declared.start] + text[end:]


def _edits(declared: CreateDynamicTable, alter: AlterDynamicTable, said: str) -> list[Edit]:
    if isinstance(alter, SetFreshness):
        return [_clause(declared, declared.freshness, "FRESHNESS", _written(alter.freshness, said))]
    if isinstance(alter, SetRefreshMode):
        return [_clause(declared, declared.refresh_mode, "REFRESH_MODE", _written(alter.refresh_mode, said))]
    if isinstance(alter, AlterQuery):
        return [(declared.query.start, declared.query.end, _written(alter.query, said))]
    if isinstance(alter, SetOptions):
        return _set(declared, alter.options.pairs, said)
    if isinstance(alter, ResetOptions):
        return _reset(declared, {key.value for key in alter.keys})
    raise TypeError(f"{type(alter).__name__} changes no declaration")


def _clause(declared: CreateDynamicTable, value: Piece | None, keyword: str, new: str) -> Edit:
    """Return the edit that changes the value of a clause, or adds the clause."""
    if value is not None:
        return value.start, value.end, new
    return declared.as_at, declared.as_at, f"{keyword} = {new}\n"


def _set(declared: CreateDynamicTable, pairs: Iterable[Pair], said: str) -> list[Edit]:
    return _with_options(declared, {pair.key.value: (_written(pair.key, said), _written(pair.value, said)) for pair in pairs})


def _with_options(declared: CreateDynamicTable, options: Mapping[str, tuple[str, str]]) -> list[Edit]:
    """Return the edits that set options, given as written name and value by option name."""
    known = {pair.key.value: pair.value for pair in declared.options.pairs} if declared.options else {}
    edits: list[Edit] = []
    added: list[str] = []
    for name, (key, value) in options.items():
        if name in known:
            edits.append((known[name].start, known[name].end, value))
        else:
            added.append(f"{key} = {value}")
    if added and declared.options is not None:
        last = declared.options.pairs[-1].value.end
        edits.append((last, last, "".join(f", {option}" for option in added)))
    elif added:
        edits.append((declared.as_at, declared.as_at, f"WITH ({', '.join(added)})\n"))
    return edits


def _reset(declared: CreateDynamicTable, keys: set[str]) -> list[Edit]:
    if declared.options is None:
        return []
    pairs = declared.options.pairs
    kept = [pair for pair in pairs if pair.key.value not in keys]
    if not kept:
        return [_whole(declared.options)]
    edits: list[Edit] = []
    for number, pair in enumerate(pairs):
        if pair.key.value in keys:
            # Remove the preceding comma too; for the first options, the following comma.
            is_before_kept = all(earlier.key.value in keys for earlier in pairs[:number])
            start = pair.key.start if is_before_kept else pairs[number - 1].value.end
            edits.append((start, pairs[number + 1].key.start if is_before_kept else pair.value.end, ""))
    return edits


def _whole(options: PairList) -> Edit:
    return options.start, options.end, ""


def _written(piece: Piece, said: str) -> str:
    return said[piece.start : piece.end]
