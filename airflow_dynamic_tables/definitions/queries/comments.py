"""Where Spark ends a comment or a hint and the parser of the definitions another: such a text is refused.

Spark goes on with a ``--`` comment after a backslash at the end of its line and ends it at a carriage return, reads comments and
quotes within a hint, and does not count a hint within a comment. Whatever only Spark sees would run unexamined.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_dynamic_tables.definitions.queries.text import Problem

_PIECE = re.compile(
    r"""
    (?P<quoted> (?<!\w)r'[^']*' | (?<!\w)r"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` )
    | (?P<line> --[^\n]* )
    | (?P<hint> /\*\+ (?:(?!\*/).)* )
    | (?P<block> /\* )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_EDGE = re.compile(r"/\*\+?|\*/")
_WITHIN_HINT = re.compile(r"""--|/\*|['"]""")


def misread(query: str) -> Iterator[Problem]:
    """The comments and hints of a query that Spark reads otherwise."""
    position = 0
    while piece := _PIECE.search(query, position):
        position = piece.end()
        if piece["line"] is not None:
            yield from _line(query, piece)
        elif piece["hint"] is not None:
            if within := _WITHIN_HINT.search(piece["hint"], 3):
                yield Problem(
                    piece.start() + within.start(), f"a hint cannot hold {within[0]}: for Spark it begins something else"
                )
        elif piece["block"] is not None:
            position, problems = _block(query, piece.start())
            yield from problems


def _line(query: str, comment: re.Match[str]) -> Iterator[Problem]:
    if comment[0].endswith("\\") and comment.end() < len(query):
        yield Problem(comment.end() - 1, "a backslash at the end of a comment: for Spark the next line is comment; remove it")
    lone = comment[0].rstrip("\r").find("\r")
    if lone >= 0:
        yield Problem(comment.start() + lone, "a carriage return in a comment: for Spark the comment ends there; remove it")


def _block(query: str, start: int) -> tuple[int, list[Problem]]:
    """Where a bracketed comment ends, in which there may be others, and what is wrong with it."""
    problems = []
    depth = 0
    position = start
    while edge := _EDGE.search(query, position):
        position = edge.end()
        if edge[0] == "/*+":
            problems.append(Problem(edge.start(), "a hint cannot stand in a comment: for Spark both end together"))
        depth += -1 if edge[0] == "*/" else 1
        if depth == 0:
            return position, problems
    return len(query), problems
