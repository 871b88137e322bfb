"""sqlglot's Spark dialect, extended by the syntax of Spark 4. It only parses; it never generates SQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.hive import HiveParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

_SIGNS = frozenset({TokenType.DASH, TokenType.PLUS})
_CONDITIONS = frozenset({TokenType.ON, TokenType.USING})

STEPS_PER_TOKEN = 50
"""Limit of parser steps, forward or back, per token of a text. Spark's own tests need at most 2."""

STEPS_OF_SHORT_TEXTS = 20_000
"""Steps that every text may use."""


class TooMuchWorkError(SqlglotError):
    """The parser exceeded its step limit because of backtracking; ``offset`` is where it stopped."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__("the query takes too long to parse; simplify it here, or split it into views")


def _of_unit(name: str, position: int) -> Callable[[list[exp.Expr]], Any]:
    """Return a builder of a function whose unit of time is a text; sqlglot takes a column for one of that name."""

    def built(arguments: list[exp.Expr]) -> Any:
        if all(isinstance(unit, exp.Literal) for unit in arguments[position : position + 1]):
            return SparkParser.FUNCTIONS[name](arguments)
        return exp.Anonymous(this=name.lower(), expressions=arguments)

    return built


class UnaryPlus(exp.Unary):
    """``+a``: the same value, but another column name."""


class SparkSQL(Spark):
    """The dialect of all queries in this package."""

    STRICT_JSON_PATH_SYNTAX = (
        False  # sqlglot would log JSON paths that it cannot parse, which are parts of the query and may hold a secret
    )

    class Tokenizer(Spark.Tokenizer):
        """Tokenizer of Spark SQL."""

        def tokenize(self, sql: str) -> list[Token]:
            """Tokenize; ``window(`` is a function, because in the WINDOW clause a name follows the keyword."""
            tokens = super().tokenize(sql)
            for token, following in itertools.pairwise(tokens):
                if token.token_type is TokenType.WINDOW and following.token_type is TokenType.L_PAREN:
                    token.token_type = TokenType.VAR
            return tokens

    class Parser(SparkParser):
        """Parser of Spark SQL."""

        COLON_IS_VARIANT_EXTRACT = True  # v:a.b[0]
        COLON_CHAIN_IS_SINGLE_EXTRACT = False
        SUPPORTS_TABLE_QUERY = True  # TABLE t

        def _warn_unsupported(self) -> None:
            """Do not log the text of a statement, as sqlglot does; it is reported as a mistake at its position."""

        FUNCTIONS = {  # noqa: RUF012
            **SparkParser.FUNCTIONS,
            "DATE_TRUNC": _of_unit("DATE_TRUNC", 0),
            "TRUNC": _of_unit("TRUNC", 1),
        }
        UNARY_PARSERS = {  # noqa: RUF012 - sqlglot's parsers are made of such tables
            **SparkParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: self.expression(UnaryPlus(this=self._parse_unary())),
        }
        PIPE_SYNTAX_TRANSFORM_PARSERS = {  # noqa: RUF012
            **SparkParser.PIPE_SYNTAX_TRANSFORM_PARSERS,
            "CLUSTER BY": lambda self, query: self._parse_pipe_order(query),
            "DISTRIBUTE BY": lambda self, query: self._parse_pipe_order(query),
            "DROP": lambda self, query: self._parse_pipe_columns(query),
            "LIMIT": lambda self, query: self._parse_pipe_limit(query),
            "OFFSET": lambda self, query: self._parse_pipe_limit(query),
            "ORDER BY": lambda self, query: self._parse_pipe_order(query),
            "SELECT": lambda self, query: self._parse_pipe_select(query),
            "SET": lambda self, query: self._parse_pipe_columns(query),
            "SORT BY": lambda self, query: self._parse_pipe_order(query),
        }

        def reset(self) -> None:
            """Reset the parser for another text."""
            super().reset()
            self._steps = 0
            self._nests: tuple[list[Token], frozenset[int]] = ([], frozenset())

        def _advance(self, times: int = 1) -> None:
            """Count the steps: some texts are reparsed repeatedly, at exponential cost in their nesting."""
            super()._advance(times)
            self._steps += 1
            if self._steps > STEPS_OF_SHORT_TEXTS and self._steps > STEPS_PER_TOKEN * self._tokens_size:
                raise TooMuchWorkError(self._tokens[min(max(self._index, 0), self._tokens_size - 1)].start)

        def _parse_join(
            self,
            skip_join_token: bool = False,
            parse_bracket: bool = False,
            alias_tokens: Collection[TokenType] | None = None,
        ) -> exp.Join | None:
            """Parse a join without repeated parsing.

            sqlglot parses the text after a join without ON twice, and so the last of n joins 2^n times.
            """
            if self._match(TokenType.COMMA, advance=False):
                return super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
            index = self._index
            method, side, kind = self._parse_join_parts()
            if not self._match(TokenType.JOIN):
                self._retreat(index)
                return None
            comments = [*self._prev_comments, *(comment for token in (method, side, kind) if token for comment in token.comments)]
            is_nesting = self._index - 1 in self._nesting_joins()
            parts = {name: token.text.upper() for name, token in (("method", method), ("side", side), ("kind", kind)) if token}
            table = self._parse_table(parse_bracket=parse_bracket, alias_tokens=alias_tokens)
            condition = self._parse_join_condition()
            if table is not None and is_nesting and not condition:
                index = self._index
                joins = list(self._parse_joins(alias_tokens=alias_tokens))
                condition = self._parse_join_condition() if joins else {}
                if condition:
                    table.set("joins", joins)
                else:
                    self._retreat(index)
            join = exp.Join(this=table, **parts, **condition, pivots=self._parse_pivots())
            return self.expression(join, comments=comments)

        def _parse_join_condition(self) -> dict[str, Any]:
            if self._match(TokenType.ON):
                return {"on": self._parse_disjunction()}
            return {"using": self._parse_using_identifiers()} if self._match(TokenType.USING) else {}

        def _nesting_joins(self) -> frozenset[int]:
            """Return the indexes of JOIN tokens whose condition follows other joins: ``a JOIN b JOIN c ON … ON …``."""
            if self._nests[0] is not self._tokens:
                self._nests = self._tokens, frozenset(_nesting_joins(self._tokens))
            return self._nests[1]

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            """Skip the check of argument counts, which is left to Spark."""
            return expression if args is not None else super().validate_expression(expression)

        def _is_table_query(self) -> bool:
            names = (*self.ID_VAR_TOKENS, TokenType.IDENTIFIER)
            return self._curr.token_type is TokenType.TABLE and self._next.token_type in names

        def _parse_statement(self) -> exp.Expr | None:
            """Accept a pipe after a union whose first query is in parentheses."""
            statement = super()._parse_statement()
            if isinstance(statement, exp.SetOperation) and self._match(TokenType.PIPE_GT, advance=False):
                statement = self._parse_pipe_syntax_query(statement)
            return statement

        def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            query = super()._parse_select(*args, **kwargs)
            if isinstance(query, exp.Values) and self._match(TokenType.PIPE_GT, advance=False):
                query = self._parse_pipe_syntax_query(exp.select("*").from_(query, copy=False))
            return query

        def _parse_pipe_select(self, query: exp.Select) -> exp.Select:
            """Parse ``|> SELECT`` without copying the preceding query, as sqlglot does."""
            select = self._parse_select(consume_pipe=False)
            if not isinstance(select, exp.Select):
                return query
            query.select(*select.expressions, append=False, copy=False)
            query.set("windows", select.args.get("windows"))
            return self._build_pipe_cte(query=query, expressions=[exp.Star()])

        def _parse_pipe_order(self, query: exp.Select) -> exp.Select:
            """Make each clause of a pipe a query of its own, because more than one may order."""
            while clause := (
                self._parse_order()
                or self._parse_sort(exp.Cluster, TokenType.CLUSTER_BY)
                or self._parse_sort(exp.Distribute, TokenType.DISTRIBUTE_BY)
                or self._parse_sort(exp.Sort, TokenType.SORT_BY)
            ):
                query.set(clause.key, clause)
                query = self._build_pipe_cte(query=query, expressions=[exp.Star()])
            return query

        def _parse_pipe_limit(self, query: exp.Select) -> exp.Select:
            """Parse ``|> LIMIT``; sqlglot requires a number if the SELECT before the pipe has no LIMIT."""
            query.set("limit", self._parse_limit() or query.args.get("limit"))
            query.set("offset", self._parse_offset() or query.args.get("offset"))
            return self._build_pipe_cte(query=query, expressions=[exp.Star()])

        def _parse_types(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            """Bypass the Hive parser, which rescans a type for each of its nesting levels."""
            return super(HiveParser, self)._parse_types(*args, **kwargs)

        def _parse_pipe_columns(self, query: exp.Select) -> exp.Select:
            """Parse ``|> SET a = b`` and ``|> DROP a``: all columns, some of them replaced or dropped."""
            self._advance()
            query.select(exp.Star(), *self._parse_expressions(), append=False, copy=False)
            return self._build_pipe_cte(query=query, expressions=[exp.Star()])

        def _parse_pipe_syntax_set_operator(self, query: exp.Query) -> exp.Query | None:
            """Parse ``|> UNION ALL TABLE t``: the second query needs no parentheses."""
            union = self.parse_set_operation(this=query)
            return self._build_pipe_cte(query=union, expressions=[exp.Star()]) if union else None

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            """Parse ``WITH RECURSIVE r MAX RECURSION LEVEL 100 AS``."""
            alias = super()._parse_table_alias(*args, **kwargs)
            if self._match_text_seq("MAX", "RECURSION", "LEVEL"):
                self._parse_number()
            return alias

        def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
            """Parse ``a >>> 2``: sqlglot knows only the first two signs."""
            if self._prev and self._prev.token_type is TokenType.GT and self._is_connected():
                self._match(TokenType.GT)
            return super()._parse_term(parse_mod)

        def _parse_type_size(self) -> exp.DataTypeParam | None:
            """Parse ``GEOMETRY(ANY)``."""
            if self._match(TokenType.ANY):
                return self.expression(exp.DataTypeParam(this=exp.var("ANY")))
            return super()._parse_type_size()

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            """Parse ``INTERVAL 1 day -2 hours``: every part may have a sign."""
            interval = super()._parse_interval(require_interval, parse_function_unit)
            while interval is not None and self._is_signed_unit():
                self._advance()
                interval = self.expression(exp.Add(this=interval, expression=super()._parse_interval(False, parse_function_unit)))
            return interval

        def _is_signed_unit(self) -> bool:
            following = self._tokens[self._index : self._index + 3]
            return (
                len(following) == 3
                and following[0].token_type in _SIGNS
                and following[1].token_type in (TokenType.NUMBER, TokenType.STRING)
                and following[2].text.upper() in self.dialect.VALID_INTERVAL_UNITS
            )

        def _parse_pivot_aggregation(self) -> exp.Expr | None:
            """Parse ``PIVOT (sum(a) + 1 AS b FOR …)``."""
            return self._parse_alias(self._parse_bitwise())


def _nesting_joins(tokens: Iterable[Token]) -> Iterator[int]:
    """Yield the indexes of JOINs that have other joins between them and their ON or USING, within the same parentheses."""
    waiting: list[list[int]] = [[]]
    last = -1
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.L_PAREN:
            waiting.append([])
        elif kind is TokenType.R_PAREN and len(waiting) > 1:
            waiting.pop()
        elif kind is TokenType.JOIN:
            waiting[-1].append(number)
            last = number
        elif kind in _CONDITIONS and waiting[-1]:
            join = waiting[-1].pop()
            if join != last:
                yield join
