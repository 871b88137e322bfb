"""Scopes of a parsed query: the tables that it reads, and which SELECT sees which of them."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from airflow_dynamic_tables.definitions.queries.text import Qualifier, Reference, Scope, Span

WORD = re.compile(r"`[^`]+`|\w+")
_WORDS = re.compile(r"(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*(?!\w|\s*\()")
_OF_RESULT = (exp.Order, exp.Sort, exp.Cluster, exp.Distribute, exp.Having, exp.Qualify)

_Select = exp.Expr | None
"""A SELECT; ``None`` is the scope outside of every SELECT."""


class Scopes:
    """The SELECTs of a query, numbered, with the references of each."""

    def __init__(self, root: exp.Expr, tokens: list[Token]) -> None:
        self._root = root
        self._tokens = tokens
        self._numbers: dict[int, int] = {}
        self._selects: list[_Select] = []
        tables = sorted(tables_read(root), key=lambda table: start_of(table.parts[0]))
        starts = [int(token.start) for token in tokens]
        pairs = itertools.pairwise(tokens)
        keywords = {name.start: int(token.start) for token, name in pairs if token.token_type is TokenType.TABLE}
        self.references = tuple(
            Reference(
                parts=tuple(map(span_of, table.parts)),
                alias=table.alias or None,
                alias_at=_alias_place(tokens, starts, span_of(table.parts[-1]).end),
                scope=self._number(_select_of(table)),
                keyword_at=keywords.get(start_of(table.parts[0])),
            )
            for table in tables
        )
        self.qualifiers = tuple(self._qualifiers())
        self.scopes = tuple(self._scopes({id(table) for table in tables}))
        self.column_aliases = tuple(sorted(self._column_aliases()))

    def _number(self, select: _Select) -> int:
        if id(select) not in self._numbers:
            self._numbers[id(select)] = len(self._selects)
            self._selects.append(select)
        return self._numbers[id(select)]

    def _qualifiers(self) -> Iterator[Qualifier]:
        """Yield the qualifiers of columns and hints.

        Those without a database are included only where a table has such columns elsewhere.
        """
        unaliased = {reference.parts[-1].text.lower() for reference in self.references if reference.alias is None}
        written = filter(_is_written, self._root.find_all(exp.Column))
        columns = [(column, tuple(map(span_of, column.parts[:-1]))) for column in written]
        hinted = list(self._hinted())
        tables = {part.text.lower() for _, parts in columns for part in parts[1:]} & unaliased
        for column, parts in columns:
            with_database = any(part.text.lower() in tables for part in parts[1:])
            if with_database or (parts and parts[0].text.lower() in tables):
                yield Qualifier(parts, self._number(_select_of(column)), _is_of_result(column))
        for parts in hinted:
            if any(part.text.lower() in unaliased for part in parts):
                yield Qualifier(parts, None)

    def _column_aliases(self) -> set[str]:
        first = {qualifier.parts[0].text.lower() for qualifier in self.qualifiers}
        if not first:
            return first
        named = {node.alias for node in self._root.find_all(exp.Alias)}
        for node in self._root.find_all(exp.Aliases, exp.TableAlias):
            named |= {name.name for name in node.args.get("columns") or node.args.get("expressions") or ()}
        return first & {name.lower() for name in named}

    def _hinted(self) -> Iterator[tuple[Span, ...]]:
        for token in self._tokens:
            if token.token_type is TokenType.HINT:
                for match in _WORDS.finditer(token.text):
                    words = WORD.finditer(token.text, *match.span())
                    yield tuple(Span(word[0].strip("`"), token.start + word.start(), token.start + word.end()) for word in words)

    def _scopes(self, read: set[int]) -> Iterator[Scope]:
        """Yield the numbered SELECTs; visiting one may number the enclosing ones."""
        names: dict[int, set[str]] = {}
        for node in self._root.find_all(exp.TableAlias, exp.Table):
            if id(node) not in read and not isinstance(node.parent, exp.CTE) and not node.find_ancestor(exp.Hint):
                names.setdefault(id(_select_of(node)), set()).add(node.name.lower())
        for select in self._selects:  # grows during the iteration
            outer = None if select is None else self._number(_outer_select(select))
            yield Scope(outer, tuple(sorted(names.get(id(select), ()))))


def tables_read(root: exp.Expr) -> Iterator[exp.Table]:
    """Yield the tables that are read, without table functions, hints and visible common table expressions."""
    stack: list[tuple[exp.Expr, _Visible]] = [(root, _Visible({}, 0))]
    while stack:
        node, visible = stack.pop()
        if isinstance(node, exp.Hint):
            continue
        clause = node.args.get("with_")
        if clause is not None:
            steps = clause.expressions
            numbers = {step.alias.lower(): number for number, step in reversed(tuple(enumerate(steps)))}
            own = 1 if clause.args.get("recursive") else 0
            stack.extend((step.this, _Visible(numbers, number + own, visible)) for number, step in enumerate(steps))
            visible = _Visible(numbers, len(steps), visible)
        if isinstance(node, exp.Table) and is_table_name(node) and (len(node.parts) > 1 or node.name.lower() not in visible):
            yield node
        stack.extend((child, visible) for child in node.iter_expressions() if child is not clause)


@dataclass(frozen=True, slots=True)
class _Visible:
    """Names of common table expressions visible at a place: the first ``many`` of a WITH clause, and those of enclosing ones."""

    numbers: Mapping[str, int]
    many: int
    around: _Visible | None = None

    def __contains__(self, name: str) -> bool:
        clause: _Visible | None = self
        while clause is not None:
            if clause.numbers.get(name, clause.many) < clause.many:
                return True
            clause = clause.around
        return False


def is_table_name(table: exp.Table) -> bool:
    """Return whether a table is given by name, not by a function."""
    return all(isinstance(part, exp.Identifier) and "start" in part.meta for part in table.parts)


def start_of(part: exp.Expr) -> int:
    """Return the offset of the first character of a name."""
    return int(part.meta["start"])


def span_of(part: exp.Expr) -> Span:
    """Return a name and its position."""
    return Span(part.name, start_of(part), int(part.meta["end"]) + 1)


def _is_written(column: exp.Column) -> bool:
    """Return whether a column is in the text; columns of hints have positions of their own."""
    return all("start" in part.meta for part in column.parts[:-1]) and not column.find_ancestor(exp.Hint)


def _is_of_result(node: exp.Expr) -> bool:
    """Return whether a column is in a clause that resolves names in the result of its SELECT first.

    In pipes, every clause may do so.
    """
    while node.parent is not None and not isinstance(node, exp.Query):
        if isinstance(node, _OF_RESULT) and isinstance(node.parent, exp.Query):
            return True
        node = node.parent
    return isinstance(node, exp.SetOperation) or _of_pipe(node) is not None or _has_pipe(node)


def _select_of(node: exp.Expr) -> _Select:
    """Return the SELECT that has a node in its FROM clause or in its expressions."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Select | exp.SetOperation):
        above = above.parent
    while isinstance(above, exp.SetOperation | exp.Subquery):
        above = above.this  # its ORDER BY sees the first SELECT
    return _whole_pipe(above)


def _whole_pipe(select: _Select) -> _Select:
    """Return the SELECT of an entire pipe: its steps see the tables of the previous steps."""
    while select is not None and (rest := _of_pipe(select)) is not None:
        select = rest
    return select


def _of_pipe(select: exp.Expr) -> _Select:
    """Return the rest of the pipe that a SELECT is a step of: sqlglot makes the steps common table expressions."""
    made = select.parent
    while isinstance(made, exp.SetOperation | exp.Subquery):
        made = made.parent
    if not isinstance(made, exp.CTE) or "start" in made.args["alias"].this.meta:
        return None
    return made.parent.parent if made.parent is not None else None


def _has_pipe(select: exp.Expr) -> bool:
    clause = select.args.get("with_")
    return clause is not None and any("start" not in step.args["alias"].this.meta for step in clause.expressions)


def _outer_select(select: exp.Expr) -> _Select:
    """Return the SELECT whose columns are visible in a SELECT: not the one with it in the FROM clause, unless it is LATERAL."""
    node = select
    sees: bool | None = None
    while node.parent is not None:
        above = node.parent
        if sees is None:
            if isinstance(above, exp.Lateral) or (isinstance(above, exp.Join) and node.arg_key != "this"):
                sees = True
            elif isinstance(above, exp.CTE | exp.From | exp.Join):
                sees = False
        if isinstance(above, exp.Select):
            if sees is not False:
                return _whole_pipe(above)
            sees = None
        elif isinstance(above, exp.SetOperation):
            sees = None
        node = above
    return None


def _alias_place(tokens: list[Token], starts: list[int], end: int) -> int:
    """Return the offset for an alias: behind the name of the table and its TABLESAMPLE clause.

    :param starts: start offset of each token.
    """
    first = bisect.bisect_left(starts, end)
    if first == len(tokens) or tokens[first].token_type is not TokenType.TABLE_SAMPLE:
        return end
    depth = 0
    for number in range(first, len(tokens)):
        token = tokens[number]
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        repeats = number + 1 < len(tokens) and tokens[number + 1].text.upper() == "REPEATABLE"
        if token.token_type is TokenType.R_PAREN and depth == 0 and not repeats:
            return int(token.end) + 1
    return end
