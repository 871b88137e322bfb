"""Token cursor shared by all statement parsers: lookahead, expected tokens and syntax errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.definitions.statements.lexing import Token, TokenKind, string_value
from airflow_dynamic_tables.definitions.statements.values import Name, Pair, PairList, Piece

QUERY_BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
"""Tokens that begin a query."""

_NO_NAMES = frozenset({"AS", "WITH", "IF", "SELECT", "PARTITIONED", "USING", "FRESHNESS", "REFRESH_MODE"})
"""Keywords that may follow a name. Without back-quotes they are not names, otherwise a missing name would go unnoticed."""

_CLOSING = {"'": "'", '"': '"', "`": "`", "/": "*/", "$": "the same again"}
_UNENDED = {"'": "string", '"': "string", "`": "name", "/": "comment", "$": "string"}

_LONGEST_SHOWN = 40
"""Longest token shown in a message, in characters; a string may be as long as the file."""

_MOST_PARTS = {1: "one name", 2: "two names: catalog.database", 3: "three names: catalog.database.table"}

_Item = TypeVar("_Item")


def is_plain_name(name: str) -> bool:
    """Return whether a name needs no back-quotes in a statement."""
    return name.isidentifier() and name.upper() not in _NO_NAMES


class GrammarError(Exception):
    """A syntax error at an offset of the text."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message
        super().__init__(message)


@dataclass(slots=True)
class Cursor:
    """Iterates over tokens, and remembers which ones were tested at the current position, for "expected …" messages."""

    text: str
    tokens: list[Token]
    position: int = 0
    _asked: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list)

    @property
    def current(self) -> Token:
        """The current token."""
        return self.tokens[self.position]

    @property
    def previous_end(self) -> int:
        """End offset of the previous token."""
        return self.tokens[self.position - 1].end

    @property
    def is_over(self) -> bool:
        """Whether the current token is the end of the text."""
        return self.current.kind is TokenKind.END

    @property
    def ends_statement(self) -> bool:
        """Whether the current token ends the statement."""
        return self.is_over or self.current.word == ";"

    def advance(self) -> Token:
        """Return the current token and move to the next one. The end token is never passed."""
        token = self.current
        if token.kind is not TokenKind.END:
            self.position += 1
            self._asked.clear()
        return token

    def at(self, *words: str, told_as: str | None = None) -> bool:
        """Return whether the current token is one of these keywords or signs.

        :param told_as: replaces all of them in a message.
        """
        self._asked.append((words, told_as))
        return self.current.word in words

    def at_query(self) -> bool:
        """Return whether the current token begins a query."""
        return self.at(*QUERY_BEGINNINGS, told_as="a query")

    def take(self, *words: str) -> bool:
        """Consume the current token if it is one of these keywords or signs, and return whether it was."""
        at_it = self.at(*words)
        if at_it:
            self.advance()
        return at_it

    def expect(self, *words: str) -> Token:
        """Consume and return the current token, which must be one of these keywords or signs.

        :raises GrammarError: when it is none of them.
        """
        if not self.at(*words):
            raise self.unexpected()
        return self.advance()

    def unexpected(self, *wanted: str) -> GrammarError:
        """Return the error for an unexpected token.

        :param wanted: what is also accepted here, in words: ``a name``.
        """
        token = self.current
        if token.kind is TokenKind.UNENDED:
            opening = token.text[0]
            return GrammarError(
                token.start, f"this {_UNENDED[opening]} has no end; expected {_CLOSING[opening]} somewhere behind it"
            )
        told = [told_as or (word if word.isidentifier() else f"'{word}'") for words, told_as in self._asked for word in words]
        *others, last = dict.fromkeys((*wanted, *told))
        expected = f"{', '.join(others)} or {last}" if others else last
        known = [word for words, _ in self._asked for word in words]
        guess = did_you_mean(token.text, known) if token.kind is TokenKind.WORD else ""
        return GrammarError(token.start, f"expected {expected}, found {self._found(token)}{guess}")

    def _found(self, token: Token) -> str:
        if token.kind is TokenKind.END:
            return "the end of the text"
        if token.word == ";":
            return "the end of the statement"
        written = token.text if len(token.text) <= _LONGEST_SHOWN else f"{token.text[:_LONGEST_SHOWN]}…"
        return written if written[0] in "'\"`" else f"'{written}'"

    def name(self, what: str, longest: int = 3) -> Name:
        """Parse a dotted name.

        :param what: what is named, with its article, for the message.
        """
        start = self.current.start
        parts = [self._part(what)]
        while self.current.word == ".":
            if len(parts) == longest:
                raise GrammarError(self.current.start, f"{what} has at most {_MOST_PARTS[longest]}")
            self.advance()
            parts.append(self._part(what))
        if self.current.word == "-":
            raise GrammarError(self.current.start, "a name with other signs than letters, digits and '_' stands in back-quotes")
        return Name(tuple(parts), start, self.previous_end)

    def _part(self, what: str) -> str:
        return self.word_or_quoted(f"the name of {what}").value

    def word_or_quoted(self, what: str) -> Piece:
        """Parse a name without dots."""
        token = self.current
        if token.kind is TokenKind.QUOTED_NAME and len(token.text) > 2:
            self.advance()
            return Piece(token.text[1:-1].replace("``", "`"), token.start, token.end)
        if token.kind is not TokenKind.WORD or token.word in _NO_NAMES:
            problem = self.unexpected(what)
            if token.word in _NO_NAMES:
                problem = GrammarError(token.start, f"{problem.message}; a name that is a keyword stands in back-quotes")
            raise problem
        self.advance()
        return Piece(token.text, token.start, token.end)

    def string(self, what: str = "a string in quotes") -> Piece:
        """Parse a string; the value of the piece is unescaped."""
        token = self.current
        if token.kind is not TokenKind.STRING:
            raise self.unexpected(what)
        self.advance()
        return Piece(string_value(token.text)[0], token.start, token.end)

    def listed(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        """Parse a non-empty list in parentheses, separated by commas."""
        self.expect("(")
        items = [item()]
        while self.take(","):
            items.append(item())
        self.expect(")")
        return tuple(items)

    def group(self, start: int, key: Callable[[], Piece], value: Callable[[], Piece]) -> PairList:
        """Parse pairs in parentheses; keys are unique."""

        def pair() -> Pair:
            left = key()
            self.expect("=")
            return Pair(left, value())

        pairs = self.listed(pair)
        self.once([pair.key for pair in pairs])
        return PairList(pairs, start, self.previous_end)

    def options(self, start: int) -> PairList:
        """``('key' = 'value', …)``."""
        return self.group(start, lambda: self.string("an option in quotes"), lambda: self.string("its value in quotes"))

    def once(self, pieces: list[Piece]) -> None:
        """Check that the values are unique."""
        first: dict[str, Piece] = {}
        for piece in pieces:
            before = first.setdefault(piece.value, piece)
            if before is not piece:
                line = self.text.count("\n", 0, before.start) + 1
                raise GrammarError(piece.start, f"{piece.value!r} stands here twice, first in line {line}")

    def query(self, start: int) -> Piece:
        """Parse a query up to the end of the statement, with its comments.

        The piece ends at the last token of the query; only its text includes the comments after that.

        :param start: where a comment that belongs to the query may begin.
        """
        if not self.at_query():
            raise self.unexpected()
        while not self.ends_statement:
            if self.current.kind is TokenKind.UNENDED:
                raise self.unexpected()
            self._check_forgotten_end()
            self.advance()
        text = self.text[start : self.current.start]
        return Piece(text.strip(), start + len(text) - len(text.lstrip()), self.previous_end)

    def _check_forgotten_end(self) -> None:
        """Report a missing semicolon if another statement begins within the query; a later check would give a worse message."""
        first = self.current.word
        if first in ("CREATE", "ALTER", "DROP"):
            words = [token.word for token in self.tokens[self.position + 1 : self.position + 3]]
            if words in (["DYNAMIC", "TABLE"], ["MATERIALIZED", "TABLE"]):
                raise GrammarError(self.current.start, f"expected ';' before {first}: the statement before has no end")
