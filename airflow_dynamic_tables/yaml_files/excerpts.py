"""Excerpts of a YAML file as written, with comments and without secrets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import yaml

from airflow_dynamic_tables.redaction import HIDDEN, is_secret_name, yaml_without_secrets

_Span = tuple[int, int]
"""Start and end of a text in its file."""


def excerpt(text: str, node: yaml.Node) -> str:
    """A list entry with the comments above it, without indentation.

    Values of keys that name secrets are hidden, whatever their spelling, and so are named secrets in comments or texts.

    :param text: the file.
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

    :param first: start of its first line.
    :param column: of its keys.
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
