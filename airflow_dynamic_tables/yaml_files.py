"""YAML with positions: plain data, and for every key and value of it the line and column where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.mistakes import Mistake

# The loader written in C is an order of magnitude faster, and PyYAML is installed without it on few machines.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
"""How the names of YAML's own types begin."""

_TEXT_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "timestamp", "value", "binary"))
_TRUE = frozenset({"yes", "true", "on"})

_MAX_DEPTH = 50
"""Levels of nesting; definitions have fewer than ten, and some thousands would overflow the stack of the loader."""

_DEEP_INDENT = re.compile(r"^[ ?-]{100}", re.MULTILINE)
"""An indentation that could be of more levels than that: each takes two characters at least."""

_MAX_NODES = 1_000_000
"""Values in a file. Aliases let a file of one kilobyte stand for gigabytes; no honest file comes near this."""

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file.

    ``data`` has strings for all scalars but ``null``, ``true`` and ``false``: the fields decide what a number is.
    """

    path: Path
    text: str
    root: yaml.Node
    data: Any

    def mistake(self, location: Location, message: str) -> Mistake:
        """A mistake in the value at that location."""
        return self._at(self._value(location).start_mark, message)

    def key_mistake(self, location: Location, message: str) -> Mistake:
        """A mistake in the key at that location."""
        parent = self._value(location[:-1])
        if isinstance(parent, yaml.MappingNode):
            for key, _ in _entries(parent):
                if key.value == location[-1]:
                    return self._at(key.start_mark, message)
        return self.mistake(location, message)

    def text_mistake(self, location: Location, offset: int, message: str) -> Mistake:
        """A mistake at that character offset of a text."""
        node = self._value(location)
        index = _offset_in_file(self.text, node, offset) if isinstance(node, yaml.ScalarNode) else node.start_mark.index
        return Mistake(self.path, *line_and_column(self.text, index), message)

    def line(self, location: Location) -> int:
        """The line a value starts in, counted from 1."""
        return int(self._value(location).start_mark.line) + 1

    def _at(self, mark: Any, message: str) -> Mistake:
        return Mistake(self.path, *_place(mark), message)

    def _value(self, location: Location) -> yaml.Node:
        """The node at a location; its nearest parent when there is none."""
        node = self.root
        for step in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
            elif isinstance(node, yaml.MappingNode):
                values = [value for key, value in _entries(node) if key.value == step]
                if not values:
                    return node
                node = values[-1]
            else:
                return node
        return node


def _place(mark: Any) -> tuple[int, int]:
    """Line and column of one of PyYAML's marks, both counted from 1."""
    return mark.line + 1, mark.column + 1


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def read_text(path: Path) -> tuple[str | None, list[Mistake]]:
    """Read a UTF-8 file; a file that cannot be read is a mistake at its first bad character."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return None, [Mistake(path, 1, 1, f"cannot be read: {error.strerror or error}")]
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n"), []
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        return None, [Mistake(path, *line_and_column(before, len(before)), "is not UTF-8 text; save the file as UTF-8")]


def parse_document(path: Path, text: str, content: str) -> tuple[Document | None, list[Mistake]]:
    """Parse YAML; ``None`` with the reasons when it is no YAML document with content.

    :param content: what such a file declares, for the one who left it empty.
    """
    try:
        if deep := _too_deep(text):
            return None, [Mistake(path, *deep, f"is nested more than {_MAX_DEPTH} levels deep")]
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_mistake(path, error)]
    except yaml.reader.ReaderError as error:
        position = line_and_column(text, error.position)
        return None, [Mistake(path, *position, "is no YAML: it contains a control character")]
    except (yaml.YAMLError, RecursionError) as error:
        return None, [Mistake(path, 1, 1, f"is no YAML: {error}")]

    if root is None:
        return None, [Mistake(path, 1, 1, f"is empty; declare {content}, or remove the file")]

    converter = _Converter(path)
    try:
        data = converter.convert(root, 0)
    except RecursionError:
        return None, [Mistake(path, 1, 1, "merges a mapping into itself")]
    return Document(path, text, root, data), converter.mistakes


def _too_deep(text: str) -> tuple[int, int] | None:
    """Where collections nest too deeply; the C loader would overflow its stack and end the process."""
    if text.count("[") + text.count("{") < _MAX_DEPTH and not _DEEP_INDENT.search(text):
        return None
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            return _place(event.start_mark)
    return None


def _syntax_mistake(path: Path, error: yaml.MarkedYAMLError) -> Mistake:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "bad syntax"
    if "'\\t'" in problem or "cannot start any token" in problem:
        problem = f"{problem}; indent with spaces, and put text that starts with a special character in quotes"
    elif "mapping values are not allowed" in problem:
        problem = f"{problem}; check the indentation, and put text that contains ': ' in quotes"
    if error.context and error.problem:
        problem = f"{problem} ({error.context})"
    place = _place(mark) if mark else (1, 1)
    return Mistake(path, *place, f"is no YAML: {problem}")


class _Converter:
    """Nodes to plain data. Collects what YAML allows and definitions do not: duplicate keys, own tags, recursion."""

    def __init__(self, path: Path) -> None:
        self.mistakes: list[Mistake] = []
        self._path = path
        self._nodes = 0
        self._checked: set[int] = set()

    def convert(self, node: yaml.Node, depth: int) -> Any:
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            if self._nodes <= _MAX_NODES + 1:
                self._nodes = _MAX_NODES + 1
                self._mistake(node, f"is nested more than {_MAX_DEPTH} levels deep, or repeats itself through aliases too often")
            return None
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            return {str(key.value): self.convert(value, depth + 1) for key, value in _entries(node)}
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> str | bool | None:
        if node.tag in _TEXT_TAGS:
            return str(node.value)
        if node.tag == _TAG + "bool":
            return node.value.lower() in _TRUE
        if node.tag != _TAG + "null":
            self._mistake(node, f"the tag {node.tag!r} means nothing here; remove it")
        return None

    def _check_keys(self, node: yaml.MappingNode) -> None:
        if id(node) in self._checked:
            return
        self._checked.add(id(node))
        seen: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._mistake(key, "a key must be text")
            elif key.tag == _TAG + "merge":
                if not all(isinstance(merged, yaml.MappingNode) for merged in _merged(value)):
                    self._mistake(value, "'<<' merges a mapping or a list of mappings")
            elif key.value in seen:
                self._mistake(key, f"duplicate key {key.value!r}, first in line {seen[key.value]}")
            else:
                seen[key.value] = key.start_mark.line + 1

    def _mistake(self, node: yaml.Node, message: str) -> None:
        self.mistakes.append(Mistake(self._path, *_place(node.start_mark), message))


def _entries(node: yaml.MappingNode) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """Keys and values of a mapping, merged ones first so that the mapping's own win."""
    for key, value in node.value:
        if key.tag == _TAG + "merge":
            for merged in reversed(_merged(value)):
                if isinstance(merged, yaml.MappingNode):
                    yield from _entries(merged)
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _TAG + "merge":
            yield key, value


def _merged(value: yaml.Node) -> list[yaml.Node]:
    return list(value.value) if isinstance(value, yaml.SequenceNode) else [value]


def _offset_in_file(text: str, node: yaml.ScalarNode, offset: int) -> int:
    """Where a character of a scalar stands in the file.

    Indentation and folding change only white space, so the character is found by counting all the others.
    """
    wanted = sum(not character.isspace() for character in node.value[:offset])
    start = node.start_mark.index
    end = node.end_mark.index
    if node.style in ("|", ">"):
        start = text.index("\n", start)
    elif node.style in ("'", '"'):
        start += 1

    index = start
    while index < end:
        width = 2 if _is_escape(text, index, node.style) else 1
        blank = text[index].isspace() or (width == 2 and text[index + 1] in "nrt \n")
        if not blank:
            if wanted == 0:
                return index
            wanted -= 1
        index += width
    return max(start, end - 1)


def _is_escape(text: str, index: int, style: str | None) -> bool:
    return (style == '"' and text[index] == "\\") or (style == "'" and text[index : index + 2] == "''")
