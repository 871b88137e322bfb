"""Parsing of YAML text to documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.limits import NESTING, NODES
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.yaml_files.documents import Document, Flag, Mappings, line_and_column, place_of

# The C loader is an order of magnitude faster, and missing on few machines.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_RESOLVER = yaml.resolver.Resolver()

_TAG = "tag:yaml.org,2002:"
"""Prefix of YAML's own types."""

_BOOL, _NULL = _TAG + "bool", _TAG + "null"

TEXT_TAG, LIST_TAG, MAPPING_TAG = _TAG + "str", _TAG + "seq", _TAG + "map"
"""The tags of all nodes that are not booleans."""

_TEXT_TAGS = frozenset(_TAG + name for name in ("str", "int", "float", "timestamp", "value", "binary"))
_TRUE = frozenset({"yes", "true", "on"})

_OTHER_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Characters that are line breaks in YAML 1.1 only."""


def parse_document(path: Path, text: str, content: str) -> tuple[Document | None, list[Mistake]]:
    """Parse YAML; ``None`` with mistakes when the text is not a YAML document with content.

    :param content: what such a file declares, for the message about an empty file.
    """
    if odd := _OTHER_LINE_BREAKS.search(text):
        message = f"has U+{ord(odd[0]):04X}, which ends a line in YAML; remove it, or write it as an escape in double quotes"
        return None, [Mistake(path, *line_and_column(text, odd.start()), message)]
    try:
        if beyond := _beyond_limits(path, text):
            return None, [beyond]
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_mistake(path, error)]
    except yaml.reader.ReaderError as error:
        position = line_and_column(text, error.position)
        return None, [Mistake(path, *position, "is no YAML: it contains a control character")]
    except yaml.YAMLError as error:
        return None, [Mistake(path, 1, 1, f"is no YAML: {error}")]

    if root is None:
        return None, [Mistake(path, 1, 1, f"is empty; declare {content}, or remove the file")]

    return document_of(path, text, root)


def document_of(path: Path, text: str, root: yaml.Node) -> tuple[Document, list[Mistake]]:
    """The document of a node tree, and its mistakes."""
    converter = _Converter()
    data = converter.convert(root, 0)
    mistakes = [Mistake(path, *place_of(node.start_mark), message) for node, message in converter.mappings.problems]
    return Document(path, text, root, converter.mappings, data), mistakes


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """The reason why a text is not YAML, and its character offset."""

    offset: int
    message: str


def compose_value(text: str) -> yaml.Node | YamlProblem:
    """Parse a YAML value embedded in another text; positions are relative to the start of the value."""
    if odd := _OTHER_LINE_BREAKS.search(text):
        return YamlProblem(
            odd.start(), f"has U+{ord(odd[0]):04X}, which ends a line in YAML; write it as an escape in double quotes"
        )
    try:
        beyond = _beyond_limits(Path(), text)
        if beyond is not None:
            return YamlProblem(0, beyond.message)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return YamlProblem(mark.index if mark else 0, f"is no YAML: {error.problem or error.context or 'bad syntax'}")
    except yaml.reader.ReaderError as error:
        return YamlProblem(error.position, "is no YAML: it contains a control character")
    except yaml.YAMLError as error:
        return YamlProblem(0, f"is no YAML: {error}")
    return node or YamlProblem(0, "has no value; give one or remove the key")


def plain_tag(text: str) -> str:
    """The tag of an unquoted text: that of a boolean or of a text; an empty text is a text."""
    return _BOOL if isinstance(scalar_of(text, is_plain=True), Flag) else TEXT_TAG


def _beyond_limits(path: Path, text: str) -> Mistake | None:
    """A mistake in a text that is too expensive to parse: PyYAML's C code overflows the stack, and each node takes memory."""
    depth = 0
    nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > NESTING:
            return Mistake(path, *place_of(event.start_mark), f"is nested more than {NESTING} levels deep")
        if nodes > NODES:
            return Mistake(path, *place_of(event.start_mark), f"has more than {NODES:,} values; split it into several files")
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
    place = place_of(mark) if mark else (1, 1)
    return Mistake(path, *place, f"is no YAML: {problem}")


def scalar_of(text: str, *, is_plain: bool) -> str | Flag | None:
    """Interpret a text as a scalar."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (is_plain, not is_plain))  # type: ignore[no-untyped-call]
    return _value(tag if tag in (_BOOL, _NULL) else _TAG + "str", text)


def _value(tag: str, text: str) -> str | Flag | None:
    if tag in _TEXT_TAGS:
        return text
    return Flag(text, text.lower() in _TRUE) if tag == _BOOL else None


class _Converter:
    """Converts nodes to plain data. ``mappings.problems`` collects constructs that definitions do not allow, such as tags."""

    def __init__(self) -> None:
        self.mappings = Mappings()
        self._nodes = 0

    def convert(self, node: yaml.Node, depth: int) -> Any:
        """The data of a node; ``None`` beyond the limits."""
        self._nodes += 1
        if depth > NESTING or self._nodes > NODES:
            if self._nodes <= NODES + 1:
                self._nodes = NODES + 1
                self._problem(node, f"is nested more than {NESTING} levels deep, or repeats itself through aliases too often")
            return None
        if isinstance(node, yaml.MappingNode):
            return {key: self.convert(value, depth + 1) for key, (_, value) in self.mappings.entries(node).items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.convert(item, depth + 1) for item in node.value]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> str | Flag | None:
        if node.tag not in (*_TEXT_TAGS, _BOOL, _NULL):
            self._problem(node, f"the tag {node.tag!r} means nothing here; remove it")
        return _value(node.tag, node.value)

    def _problem(self, node: yaml.Node, message: str) -> None:
        self.mappings.problems.append((node, message))
