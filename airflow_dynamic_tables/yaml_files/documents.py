"""YAML files as plain data with positions, and excerpts of them as written."""

from __future__ import annotations

import re
import stat
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.limits import FILE_BYTES, NESTING, NODES
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.redaction import HIDDEN, is_secret_name, yaml_without_secrets

_SEEN = {
    "'": re.compile(r"''|\S"),
    '"': re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|\S", re.DOTALL),
}
"""Regular expressions for one non-blank character in quoted scalars, with escapes."""

_PLAIN = re.compile(r"\S")

_BLANK_ESCAPES = frozenset("nrtvfNLP_ \n\t")


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def read_text(path: Path) -> tuple[str | None, list[Mistake]]:
    """Read a UTF-8 file; an unreadable file is reported as a mistake at its first invalid character."""
    try:
        # Reading a pipe would block, and a device may be endless.
        if not stat.S_ISREG(path.stat().st_mode):
            return None, [Mistake(path, 1, 1, "cannot be read: it is no file of text")]
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        return None, [Mistake(path, 1, 1, f"cannot be read: {getattr(error, 'strerror', None) or error}")]
    return text_of(path, content)


def text_of(path: Path, content: bytes) -> tuple[str | None, list[Mistake]]:
    """As :func:`read_text`, from the current or future content of a file."""
    if len(content) > FILE_BYTES:
        return None, [Mistake(path, 1, 1, f"has more than {FILE_BYTES:,} bytes; split it into several files")]
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        return None, [Mistake(path, *line_and_column(before, len(before)), "is not UTF-8 text; save the file as UTF-8")]
    if (lone := text.find("\r")) >= 0:
        message = "has a carriage return that is no line end; save the file with the line ends LF or CRLF"
        return None, [Mistake(path, *line_and_column(text, lone), message)]
    return text, []


def places_of_characters(text: str, start: int, end: int, style: str | None) -> list[int]:
    """Positions in a file of a scalar's characters, except white space, which indentation and folding change.

    :param style: PyYAML's style: the character that begins the scalar, ``None`` for a plain one.
    """
    if style in ("|", ">"):
        start = max(text.find("\n", start), start)
    elif style in _SEEN:
        start += 1
        end -= 1
    seen = _SEEN.get(style or "", _PLAIN)
    return [match.start() for match in seen.finditer(text, start, end) if not _is_blank(match)]


def _is_blank(match: re.Match[str]) -> bool:
    """Return whether an escape in double quotes is white space."""
    kind = match.lastindex
    if kind is None:
        return False
    return match[4] in _BLANK_ESCAPES if kind == 4 else chr(int(match[kind], 16)).isspace()


MERGE = "tag:yaml.org,2002:merge"

Entries = dict[str, tuple[yaml.ScalarNode, yaml.Node]]
"""Key and value nodes by the text of the key."""


class Mappings:
    """The entries of every mapping of a file, each computed once.

    ``problems`` are constructs, with their nodes, that YAML allows and definitions do not: duplicate keys, keys that are not
    text, and merges of anything but mappings, of a mapping into itself, or of too many keys.
    """

    def __init__(self) -> None:
        self.problems: list[tuple[yaml.Node, str]] = []
        self._entries: dict[int, Entries] = {}
        self._open: list[int] = []
        self._merged = 0

    def entries(self, node: yaml.MappingNode) -> Entries:
        """Keys and values, merged ones first; the mapping's own entries take precedence."""
        known = self._entries.get(id(node))
        if known is not None:
            return known
        self._open.append(id(node))
        entries: Entries = {}
        for key, value in node.value:
            if key.tag == MERGE:
                for merged in self._merged_into(value):
                    entries.update(self.entries(merged))
        entries.update(self._own(node))
        self._open.pop()
        self._entries[id(node)] = entries
        return entries

    def _own(self, node: yaml.MappingNode) -> Entries:
        own: Entries = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append((key, "a key must be text"))
            elif key.tag != MERGE:
                if key.value in own:
                    first = own[key.value][0].start_mark.line + 1
                    self.problems.append((key, f"duplicate key {key.value!r}, first in line {first}"))
                own[key.value] = (key, value)
        return own

    def _merged_into(self, value: yaml.Node) -> Iterator[yaml.MappingNode]:
        """The mappings that ``<<`` merges, in ascending precedence."""
        for merged in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
            if self._merged > NODES:
                return
            if not isinstance(merged, yaml.MappingNode):
                self.problems.append((value, "'<<' merges a mapping or a list of mappings"))
            elif id(merged) in self._open:
                self.problems.append((value, "merges a mapping into itself"))
            elif len(self._open) > NESTING:
                self.problems.append((value, f"merges what merges others, more than {NESTING} times over"))
            else:
                yield merged
                self._merged += 1 + len(self._entries[id(merged)])
                if self._merged > NODES:
                    self.problems.append((value, f"merges more than {NODES:,} keys, counted with those before it"))


Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Flag:
    """A scalar that is a boolean in YAML 1.1: ``true``, ``yes``, ``on``, ``NO``.

    A text field has to decide whether a boolean was intended: ``NO`` is also Norway.
    """

    text: str
    value: bool

    def __repr__(self) -> str:
        """The text as written."""
        return repr(self.text)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file.

    ``data`` has strings for all scalars except ``null`` and flags; numbers are parsed by the fields.
    """

    path: Path
    text: str
    root: yaml.Node
    mappings: Mappings
    data: Any
    _characters: dict[int, list[int]] = field(default_factory=dict)

    def mistake(self, location: Location, message: str) -> Mistake:
        """A mistake in the value at that location."""
        return self._at(self._value(location), message)

    def key_mistake(self, location: Location, message: str) -> Mistake:
        """A mistake in the key at that location."""
        parent = self._value(location[:-1])
        if isinstance(parent, yaml.MappingNode):
            entry = self.mappings.entries(parent).get(str(location[-1]))
            if entry is not None:
                return self._at(entry[0], message)
        return self.mistake(location, message)

    def text_mistake(self, location: Location, offset: int, message: str) -> Mistake:
        """A mistake at a character offset of a text."""
        node = self._value(location)
        index = self._place(node, offset) if isinstance(node, yaml.ScalarNode) else node.start_mark.index
        return Mistake(self.path, *line_and_column(self.text, index), message)

    def place(self, location: Location) -> str:
        """The position of a value: path, line and column."""
        line, column = place_of(self._value(location).start_mark)
        return f"{self.path}:{line}:{column}"

    def excerpt(self, location: Location) -> str:
        """A list entry as written, including the comments above it, without indentation and secrets."""
        return excerpt(self.text, self._value(location))

    def is_plain(self, location: Location) -> bool:
        """Return whether a value is an unquoted scalar, the only kind that can be a boolean or null."""
        node = self._value(location)
        return isinstance(node, yaml.ScalarNode) and not node.style

    def scalar_type(self, location: Location) -> str:
        """YAML's type of a scalar as written: ``str`` (also for everything quoted), ``int``, ``float``, ``timestamp``."""
        return str(self._value(location).tag).rpartition(":")[2]

    def line(self, location: Location) -> int:
        """The line a value starts in, counted from 1."""
        return int(self._value(location).start_mark.line) + 1

    def _at(self, node: yaml.Node, message: str) -> Mistake:
        return Mistake(self.path, *place_of(node.start_mark), message)

    def _value(self, location: Location) -> yaml.Node:
        """The node at a location; its nearest existing parent otherwise."""
        node = self.root
        for step in location:
            if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
            elif isinstance(node, yaml.MappingNode):
                entry = self.mappings.entries(node).get(str(step))
                if entry is None:
                    return node
                node = entry[1]
            else:
                return node
        return node

    def _place(self, node: yaml.ScalarNode, offset: int) -> int:
        """The position in the file of a character of a scalar; the end of the scalar when it has fewer characters."""
        start, end = node.start_mark.index, node.end_mark.index
        if id(node) not in self._characters:
            self._characters[id(node)] = places_of_characters(self.text, start, end, node.style)
        places = self._characters[id(node)]
        wanted = sum(map(len, node.value[:offset].split()))
        return places[wanted] if wanted < len(places) else max(start, end - 1)


def place_of(mark: Any) -> tuple[int, int]:
    """Line and column of one of PyYAML's marks, both counted from 1."""
    return mark.line + 1, mark.column + 1


_Span = tuple[int, int]
"""Start and end of a text in its file."""


def excerpt(text: str, node: yaml.Node) -> str:
    """A list entry with the comments above it, without indentation.

    Values of keys that name secrets are hidden, whatever their spelling, and so are named secrets in comments or texts.
    """
    start, end = node.start_mark.index, node.end_mark.index
    first = text.rfind("\n", 0, start) + 1
    is_block = not text[first:start].strip(" -")
    if is_block:
        first, end = _with_comments(text, first, end, node.start_mark.column)
    else:
        first = start
    shown, position = [], first
    for hidden_start, hidden_end in sorted(_secrets(node)):
        # Merged mappings and aliases may be elsewhere in the file, outside the excerpt.
        if position <= hidden_start < end:
            shown += [text[position:hidden_start], HIDDEN]
            position = hidden_start + len(text[hidden_start:hidden_end].rstrip())
    shown.append(text[position:end])
    return yaml_without_secrets(textwrap.dedent("".join(shown)).strip("\n"))


def _with_comments(text: str, first: int, end: int, column: int) -> _Span:
    """Start and end of an entry with its own lines, including its comments.

    Comments that are indented less than the entry's keys belong to the entry that follows them: those above are included, those
    below are not.
    """
    while first:
        above = text.rfind("\n", 0, first - 1) + 1
        line = text[above:first]
        if not _is_comment(line) or _indentation(line) >= column:
            break
        first = above
    body = text[first:end].rstrip(" ")
    if not body.endswith("\n"):
        line_end = text.find("\n", end)
        body = text[first:] if line_end < 0 else text[first : line_end + 1]
    lines = body.split("\n")
    while lines and (not lines[-1].strip() or (_is_comment(lines[-1]) and _indentation(lines[-1]) < column)):
        lines.pop()
    return first, first + len("\n".join(lines))


def _is_comment(line: str) -> bool:
    return line.lstrip(" ").startswith("#")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _secrets(node: yaml.Node) -> Iterator[_Span]:
    """Positions of the values of keys that name secrets; each node is visited once, however many aliases it has."""
    seen: set[tuple[int, bool]] = set()
    waiting = [(node, False)]
    while waiting:
        current, is_secret = waiting.pop()
        if (id(current), is_secret) in seen:
            continue
        seen.add((id(current), is_secret))
        if isinstance(current, yaml.MappingNode):
            waiting += [(value, is_secret or is_secret_name(str(key.value))) for key, value in current.value]
        elif isinstance(current, yaml.SequenceNode):
            waiting += [(item, is_secret) for item in current.value]
        elif is_secret:
            yield current.start_mark.index, current.end_mark.index
