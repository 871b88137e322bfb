"""One YAML file as plain data, with the places of its keys and values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.yaml_files.excerpts import excerpt
from airflow_dynamic_tables.yaml_files.mappings import Mappings
from airflow_dynamic_tables.yaml_files.texts import line_and_column, places_of_characters

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Flag:
    """A scalar that YAML 1.1 takes for true or false: ``true``, ``yes``, ``on``, ``NO``.

    Who wants text has to decide whether that was meant: Norway is ``NO``, too.
    """

    text: str
    value: bool

    def __repr__(self) -> str:
        """As it is written."""
        return repr(self.text)


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file.

    ``data`` has strings for all scalars but ``null`` and flags: the fields decide what a number is.
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
        """A mistake at that character offset of a text."""
        node = self._value(location)
        index = self._place(node, offset) if isinstance(node, yaml.ScalarNode) else node.start_mark.index
        return Mistake(self.path, *line_and_column(self.text, index), message)

    def place(self, location: Location) -> str:
        """Where a value stands: path, line and column."""
        line, column = place_of(self._value(location).start_mark)
        return f"{self.path}:{line}:{column}"

    def excerpt(self, location: Location) -> str:
        """An entry of a list as it is written, with the comments above it, without indentation and secrets."""
        return excerpt(self.text, self._value(location))

    def is_plain(self, location: Location) -> bool:
        """Whether a value is a scalar without quotes, on a line: the only one that may be a truth value or nothing."""
        node = self._value(location)
        return isinstance(node, yaml.ScalarNode) and not node.style

    def scalar_type(self, location: Location) -> str:
        """What YAML takes a scalar for as it is written: ``str`` (also for all in quotes), ``int``, ``float``, ``timestamp``."""
        return str(self._value(location).tag).rpartition(":")[2]

    def line(self, location: Location) -> int:
        """The line a value starts in, counted from 1."""
        return int(self._value(location).start_mark.line) + 1

    def _at(self, node: yaml.Node, message: str) -> Mistake:
        return Mistake(self.path, *place_of(node.start_mark), message)

    def _value(self, location: Location) -> yaml.Node:
        """The node at a location; its nearest parent when there is none."""
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
        """Where in the file a character of a scalar stands; behind the last one, when there are fewer."""
        start, end = node.start_mark.index, node.end_mark.index
        if id(node) not in self._characters:
            self._characters[id(node)] = places_of_characters(self.text, start, end, node.style)
        places = self._characters[id(node)]
        wanted = sum(map(len, node.value[:offset].split()))
        return places[wanted] if wanted < len(places) else max(start, end - 1)


def place_of(mark: Any) -> tuple[int, int]:
    """Line and column of one of PyYAML's marks, both counted from 1."""
    return mark.line + 1, mark.column + 1
