"""Mappings of YAML with what ``<<`` merges into them."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from airflow_dynamic_tables.core.limits import NESTING, NODES

MERGE = "tag:yaml.org,2002:merge"

Entries = dict[str, tuple[yaml.ScalarNode, yaml.Node]]
"""By the text of each key the nodes of key and value."""


class Mappings:
    """The entries of every mapping of one file, each computed once.

    ``problems`` are what YAML allows and definitions do not, with its place: duplicate keys, keys that are no text, and merges of
    anything but mappings, of a mapping into itself, or of too much.
    """

    def __init__(self) -> None:
        self.problems: list[tuple[yaml.Node, str]] = []
        self._entries: dict[int, Entries] = {}
        self._open: list[int] = []
        self._merged = 0

    def entries(self, node: yaml.MappingNode) -> Entries:
        """Keys and values, merged ones first; the mapping's own win."""
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
        """The mappings that ``<<`` names, the one that wins last."""
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
