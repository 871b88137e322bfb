"""Spark's SQL as sqlglot reads it, with what Spark 4 knows beyond sqlglot's own dialect. It only reads, it never writes SQL."""

from __future__ import annotations

import itertools
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

_SIGNS = frozenset({TokenType.DASH, TokenType.PLUS})


class UnaryPlus(exp.Unary):
    """``+a``: the same value, but a column of another name."""


class SparkSQL(Spark):
    """The dialect of every query here."""

    class Tokenizer(Spark.Tokenizer):
        """Tokens of Spark's SQL."""

        def tokenize(self, sql: str) -> list[Token]:
            """As sqlglot does; ``window(`` is a function, because the clause WINDOW names a window first."""
            tokens = super().tokenize(sql)
            for token, following in itertools.pairwise(tokens):
                if token.token_type is TokenType.WINDOW and following.token_type is TokenType.L_PAREN:
                    token.token_type = TokenType.VAR
            return tokens

    class Parser(SparkParser):
        """Grammar of Spark's SQL."""

        COLON_IS_VARIANT_EXTRACT = True  # v:a.b[0]
        COLON_CHAIN_IS_SINGLE_EXTRACT = False
        SUPPORTS_TABLE_QUERY = True  # TABLE t

        UNARY_PARSERS = {  # noqa: RUF012 - sqlglot's parsers are made of such tables
            **SparkParser.UNARY_PARSERS,
            TokenType.PLUS: lambda self: self.expression(UnaryPlus(this=self._parse_unary())),
        }
        PIPE_SYNTAX_TRANSFORM_PARSERS = {  # noqa: RUF012
            **SparkParser.PIPE_SYNTAX_TRANSFORM_PARSERS,
            "DROP": lambda self, query: self._parse_pipe_columns(query),
            "OFFSET": lambda self, query: self._parse_pipe_syntax_limit(query),
            "SET": lambda self, query: self._parse_pipe_columns(query),
        }

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            """How many arguments a function takes is Spark's affair."""
            return expression if args is not None else super().validate_expression(expression)

        def _is_table_query(self) -> bool:
            names = (*self.ID_VAR_TOKENS, TokenType.IDENTIFIER)
            return self._curr.token_type is TokenType.TABLE and self._next.token_type in names

        def _parse_statement(self) -> exp.Expr | None:
            """A pipe may follow a union whose first query stands in parentheses."""
            statement = super()._parse_statement()
            if isinstance(statement, exp.SetOperation) and self._match(TokenType.PIPE_GT, advance=False):
                statement = self._parse_pipe_syntax_query(statement)
            return statement

        def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            """A pipe may begin with VALUES, too."""
            query = super()._parse_select(*args, **kwargs)
            if isinstance(query, exp.Values) and self._match(TokenType.PIPE_GT, advance=False):
                query = self._parse_pipe_syntax_query(exp.select("*").from_(query, copy=False))
            return query

        def _parse_pipe_columns(self, query: exp.Select) -> exp.Select:
            """``|> SET a = b`` and ``|> DROP a``: all columns, some of them others or left out."""
            self._advance()
            query.select(exp.Star(), *self._parse_expressions(), append=False, copy=False)
            return self._build_pipe_cte(query=query, expressions=[exp.Star()])

        def _parse_pipe_syntax_set_operator(self, query: exp.Query) -> exp.Query | None:
            """``|> UNION ALL TABLE t``: the second query need not stand in parentheses."""
            union = self.parse_set_operation(this=query)
            return self._build_pipe_cte(query=union, expressions=[exp.Star()]) if union else None

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            """``WITH RECURSIVE r MAX RECURSION LEVEL 100 AS``."""
            alias = super()._parse_table_alias(*args, **kwargs)
            if self._match_text_seq("MAX", "RECURSION", "LEVEL"):
                self._parse_number()
            return alias

        def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
            """``a >>> 2``: the third sign stands behind the two that sqlglot knows."""
            if self._prev and self._prev.token_type is TokenType.GT and self._is_connected():
                self._match(TokenType.GT)
            return super()._parse_term(parse_mod)

        def _parse_type_size(self) -> exp.DataTypeParam | None:
            """``GEOMETRY(ANY)``."""
            if self._match(TokenType.ANY):
                return self.expression(exp.DataTypeParam(this=exp.var("ANY")))
            return super()._parse_type_size()

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            """``INTERVAL 1 day -2 hours``: every part may have a sign."""
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
            """``PIVOT (sum(a) + 1 AS b FOR …)``."""
            return self._parse_alias(self._parse_bitwise())
