"""Parsing of queries with sqlglot into an :class:`Analysis`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from airflow_dynamic_tables.core.refresh.permissions import JAVA_CALLS, Ability
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL, TooMuchWorkError
from airflow_dynamic_tables.definitions.queries.scopes import WORD, Scopes, is_table_name, span_of, start_of
from airflow_dynamic_tables.definitions.queries.text import Analysis, Condition, Need, QueryProblem, Span, misread

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
    """Yield constructs that parse but cannot be refreshed."""
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
