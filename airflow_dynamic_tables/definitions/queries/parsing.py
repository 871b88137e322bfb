"""Queries parsed by sqlglot: the tables, functions, columns and scopes in them."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from airflow_dynamic_tables.core.refresh.permissions import JAVA_CALLS, Ability
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL, TooMuchWorkError
from airflow_dynamic_tables.definitions.queries.text import (
    Analysis,
    Condition,
    Need,
    Qualifier,
    QueryProblem,
    Reference,
    Scope,
    Span,
    misread,
)

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
    """Return the offset for an alias: behind the name of the table and its TABLESAMPLE clause."""
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


_TYPES = frozenset({"tinyint", "smallint", "int", "bigint", "date"})
_GENERATORS = (exp.Explode, exp.Posexplode, exp.Inline, exp.UDTF)
_PARAMETER_SIGNS = frozenset({":", "?", "$", "@"})
_AFTER_LIST = frozenset({TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.R_PAREN, TokenType.SEMICOLON})
_NEVER_CLOSED = re.compile(r"Missing (\S+) from (\d+):(\d+)")
_INCOMPLETE = re.compile(r"Required keyword: '(\w+)' missing for <class '.*\.(\w+)'>")


class _UnusableError(Exception):
    """The text is not a query; carries the problem."""

    def __init__(self, offset: int, message: str, *, unread: bool = False) -> None:
        self.problem = QueryProblem(offset, message, unread)
        super().__init__(message)


def analyse(query: str) -> Analysis:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.analyse`."""
    try:
        tokens = _tokens(query)
        text, tokens = _single_statement(query, tokens)
        root = _parse_query(text, tokens)
        seen = Scopes(root, tokens)
        calls = tuple(_calls(root, tokens))
        problems = tuple(_problems(root, tokens))
        needs = tuple(_needs(tokens))
        found = (*_outputs(root), calls, needs, problems, seen.column_aliases)
        return Analysis(text, seen.references, seen.scopes, seen.qualifiers, *found)
    except _UnusableError as error:
        return Analysis(query, problems=(error.problem,))
    except RecursionError:
        return Analysis(query, problems=(QueryProblem(0, "the query is nested too deeply; split it into views"),))


def analyse_condition(text: str) -> Condition:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.analyse_condition`."""
    try:
        tokens = _tokens(text)
        if (end := next((token for token in tokens if token.token_type is TokenType.SEMICOLON), None)) is not None:
            raise _UnusableError(end.start, "a predicate is one condition; remove the semicolon")
        root = _parse(text, tokens, exp.Condition) if tokens else None
        if root is None:
            raise _UnusableError(0, "the predicate is empty")
        if (clause := root.find(exp.Query, exp.AggFunc, exp.Window)) is not None:
            place = min((start_of(column.parts[0]) for column in clause.find_all(exp.Column)), default=tokens[0].start)
            raise _UnusableError(place, "a predicate looks at one row; it cannot hold a subquery, an aggregate or a window")
        columns = tuple(span_of(column.parts[0]) for column in root.find_all(exp.Column) if "start" in column.parts[0].meta)
        in_order = tuple(sorted(columns, key=lambda span: span.start))
        return Condition(in_order, tuple(_needs(tokens)), tuple(_problems(root, tokens)))
    except _UnusableError as error:
        return Condition(problems=(error.problem,))
    except RecursionError:
        return Condition(problems=(QueryProblem(0, "the predicate is nested too deeply"),))


def same(first: str, second: str) -> bool:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.same_query`."""
    try:
        return bool(sqlglot.parse(first, dialect=SparkSQL) == sqlglot.parse(second, dialect=SparkSQL))
    except (SqlglotError, RecursionError):
        return False


def _tokens(query: str) -> list[Token]:
    if (problem := next(misread(query), None)) is not None:
        raise _UnusableError(problem.offset, problem.message)
    try:
        return list(SparkSQL().tokenize(query))
    except TokenError as error:
        cause = str(error.__cause__ or error)
        place = _NEVER_CLOSED.search(cause)
        if place is None:
            raise _UnusableError(
                max(query.rfind("/*"), 0), "bad SQL: a comment or a quote is never closed", unread=True
            ) from error
        start = sum(len(line) + 1 for line in query.split("\n")[: int(place[2]) - 1])
        raise _UnusableError(start + int(place[3]), f"bad SQL: {place[1]} is never closed", unread=True) from error


def _single_statement(query: str, tokens: list[Token]) -> tuple[str, list[Token]]:
    """Return the query without trailing semicolons and comments."""
    end = next((number for number, token in enumerate(tokens) if token.token_type is TokenType.SEMICOLON), None)
    if end is None:
        kept = tokens
        text = query
    else:
        for token in tokens[end:]:
            if token.token_type is not TokenType.SEMICOLON:
                raise _UnusableError(token.start, "more than one statement; a query is a single SELECT")
        kept = tokens[:end]
        text = query[: tokens[end].start]
    if not kept:
        raise _UnusableError(0, "the query is empty")
    return text.rstrip(), kept


def _parse_query(text: str, tokens: list[Token]) -> exp.Expr:
    root = _parse(text, tokens)
    if isinstance(root, (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)):
        return root
    raise _UnusableError(tokens[0].start, f"a query must be a SELECT, not {tokens[0].text.upper()}")


def _parse(text: str, tokens: list[Token], into: type[exp.Expr] | None = None) -> exp.Expr | None:
    parser = SparkSQL().parser(error_message_context=len(text))
    try:
        return (parser.parse(tokens, text) if into is None else parser.parse_into(into, tokens, text))[0]
    except TooMuchWorkError as error:
        raise _UnusableError(error.offset, str(error)) from error
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        offset = len(detail.get("start_context") or "")
        message = _plain(detail.get("description") or str(error), detail.get("highlight") or "")
        raise _UnusableError(offset, f"bad SQL: {message}", unread=True) from error
    except TokenError as error:
        # Hints are parsed only at this point.
        place = next((token.start for token in tokens if token.token_type is TokenType.HINT), 0)
        raise _UnusableError(place, "bad SQL: a quote in a hint is never closed", unread=True) from error
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # sqlglot fails with other errors on some texts, none of which is valid SQL.
        raise _UnusableError(tokens[0].start, f"bad SQL: it cannot be parsed ({error})", unread=True) from error


def _plain(description: str, near: str) -> str:
    """Return the description of a sqlglot error without class names."""
    incomplete = _INCOMPLETE.search(description)
    if incomplete:
        return f"{incomplete[2].upper()} is incomplete"
    if description.startswith("Invalid expression / Unexpected token"):
        return f"unexpected {near!r}" if near else "the query ends too early"
    what = description.split(". ")[0]
    return f"{what[:1].lower()}{what[1:]}" + (f" near {near!r}" if near else "")


def _calls(root: exp.Expr, tokens: list[Token]) -> Iterator[tuple[Span, ...]]:
    """Yield the names of called functions, with their databases; single-part names only if sqlglot does not know them as SQL."""
    places = {token.start: number for number, token in enumerate(tokens)}
    anonymous = (call for call in root.find_all(exp.Anonymous) if not isinstance(call.parent, exp.Table | exp.Hint))
    for call in sorted(anonymous, key=start_of):
        last = first = places[start_of(call)]
        while first >= 2 and tokens[first - 1].token_type is TokenType.DOT and _is_word(tokens[first - 2]):
            first -= 2
        names = tokens[first : last + 1 : 2]
        yield tuple(Span(token.text, int(token.start), int(token.end) + 1) for token in names)


def _needs(tokens: list[Token]) -> Iterator[Need]:
    """Detect needs by tokens, independently of how the parser understands the context."""
    for token, following in pairwise(tokens):
        if token.token_type is TokenType.USING and following.token_type is not TokenType.L_PAREN:
            yield Need(Ability.TRANSFORM, int(token.start))
        elif token.text.lower() in JAVA_CALLS and following.token_type is TokenType.L_PAREN:
            yield Need(Ability.JAVA_CALLS, int(token.start))


def _is_word(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or WORD.fullmatch(token.text) is not None


def _outputs(root: exp.Expr) -> tuple[tuple[str | None, ...] | None, tuple[str | None, ...] | None]:
    """Return names and types of the outputs as far as the text determines them.

    A union may widen the types of its first part.
    """
    widened = False
    while isinstance(root, (exp.Subquery, exp.SetOperation)):
        widened = widened or isinstance(root, exp.SetOperation)
        root = root.this
    if not isinstance(root, exp.Select):
        return None, None
    columns: list[tuple[str | None, str | None]] = []
    for item in root.selects:
        if item.is_star or isinstance(item, _GENERATORS):
            return None, None
        if isinstance(item, exp.Aliases):
            columns += [(name.name, None) for name in item.args["expressions"]]
        else:
            columns.append((_name_of(item), None if widened else _type_of(item.unalias())))
    return tuple(name for name, _ in columns), tuple(kind for _, kind in columns)


def _type_of(item: exp.Expr) -> str | None:
    """Return the type of an integer or a date, if a cast or a function determines it."""
    if isinstance(item, exp.Cast):
        kind = str(getattr(item.to.this, "value", "")).lower()  # the type of an interval is a tree
        return kind if kind in _TYPES else None
    if isinstance(item, exp.TsOrDsToDate | exp.CurrentDate):
        return "date"
    return "int" if isinstance(item, exp.Year | exp.Month | exp.Day | exp.Hour | exp.Minute | exp.Second) else None


def _name_of(item: exp.Expr) -> str | None:
    """Return the name that Spark gives an output, unless it is derived from the text of an expression."""
    if isinstance(item, exp.Paren):
        return _name_of(item.this)
    if isinstance(item, exp.Cast | exp.Dot) and not isinstance(item.this, exp.Column):
        return None
    plain = exp.Alias | exp.Cast | exp.Column | exp.Dot | exp.Literal
    return (item.output_name or None) if isinstance(item, plain) else None


def _problems(root: exp.Expr, tokens: list[Token]) -> Iterator[QueryProblem]:
    for number, token in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else None
        if token.token_type is TokenType.COMMA and (following is None or following.token_type in _AFTER_LIST):
            yield QueryProblem(token.start, "bad SQL: nothing follows the comma")
        if token.token_type in (TokenType.L_BRACE, TokenType.BLOCK_START) and _is_template(token, following):
            yield QueryProblem(
                token.start, "templates are not rendered in queries; the refreshed partitions are selected by themselves"
            )
            return
    if root.find(exp.Placeholder, exp.Parameter):
        place = next((token.start for token in tokens if token.text in _PARAMETER_SIGNS), 0)
        yield QueryProblem(place, "a query has no parameters; write the value")
    for table in root.find_all(exp.Table):
        if (table.args.get("version") or table.args.get("when")) and is_table_name(table):
            yield QueryProblem(
                start_of(table.parts[0]), "a refresh chooses the version of every table itself; remove the time travel"
            )
    if root.find(exp.Into):
        place = next((token.start for token in tokens if token.token_type is TokenType.INTO), 0)
        yield QueryProblem(place, "a query writes nothing itself; remove INTO")
    for call in root.find_all(exp.Anonymous):
        if any(isinstance(argument, exp.Select) for argument in call.expressions):
            yield QueryProblem(start_of(call), f"{call.name} is given a table, which cannot be analysed; read the table in FROM")
        if call.name.upper() in ("TABLE", "IDENTIFIER"):
            place = next((token.start for token in tokens if token.text.upper() == call.name.upper()), 0)
            yield QueryProblem(place, f"{call.name.upper()}(...) hides which table is read; name the table in FROM")


def _is_template(token: Token, following: Token | None) -> bool:
    return token.token_type is TokenType.BLOCK_START or (
        following is not None and following.start == token.end + 1 and following.text in ("{", "%")
    )
