"""What every statement is parsed with: the next token, what may stand there, and what to say when something else does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.definitions.statements.lexing import Token, TokenKind, string_value
from airflow_dynamic_tables.definitions.statements.values import Group, Name, Pair, Piece

QUERY_BEGINNINGS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
"""How a query begins."""

_NO_NAMES = frozenset({"AS", "WITH", "IF", "SELECT", "PARTITIONED", "USING", "FRESHNESS", "REFRESH_MODE"})
"""Words that begin what stands behind a name: without back-quotes they are no names, or a name that is missing would be one."""

_CLOSING = {"'": "'", '"': '"', "`": "`", "/": "*/", "$": "the same again"}
_UNENDED = {"'": "string", '"': "string", "`": "name", "/": "comment", "$": "string"}

_LONGEST_SHOWN = 40
"""Characters of a token that stand in a message; a string may be as long as the file."""

_MOST_PARTS = {1: "one name", 2: "two names: catalog.database", 3: "three names: catalog.database.table"}

_Item = TypeVar("_Item")


def is_plain_name(name: str) -> bool:
    """Whether a name needs no back-quotes in a statement."""
    return name.isidentifier() and name.upper() not in _NO_NAMES


class GrammarError(Exception):
    """What is wrong with a statement, at an offset of its text."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message
        super().__init__(message)


@dataclass(slots=True)
class Cursor:
    """Goes through tokens; remembers what was asked for at the present one, to say what was expected there."""

    text: str
    tokens: list[Token]
    position: int = 0
    _asked: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list)

    @property
    def current(self) -> Token:
        """The present token."""
        return self.tokens[self.position]

    @property
    def previous_end(self) -> int:
        """Where the token before ends."""
        return self.tokens[self.position - 1].end

    @property
    def is_over(self) -> bool:
        """Whether the text ends here."""
        return self.current.kind is TokenKind.END

    @property
    def ends_statement(self) -> bool:
        """Whether the statement ends here."""
        return self.is_over or self.current.word == ";"

    def advance(self) -> Token:
        """The present token; the next one is present then. Nothing comes after the end."""
        token = self.current
        if token.kind is not TokenKind.END:
            self.position += 1
            self._asked.clear()
        return token

    def at(self, *words: str, told_as: str | None = None) -> bool:
        """Whether one of these keywords or signs stands here.

        :param told_as: what a message says in place of all of them.
        """
        self._asked.append((words, told_as))
        return self.current.word in words

    def at_query(self) -> bool:
        """Whether a query begins here."""
        return self.at(*QUERY_BEGINNINGS, told_as="a query")

    def take(self, *words: str) -> bool:
        """Go on, if one of these keywords or signs stands here."""
        at_it = self.at(*words)
        if at_it:
            self.advance()
        return at_it

    def expect(self, *words: str) -> Token:
        """The token, which must be one of these keywords or signs.

        :raises GrammarError: when it is none.
        """
        if not self.at(*words):
            raise self.unexpected()
        return self.advance()

    def unexpected(self, *wanted: str) -> GrammarError:
        """What is wrong when nothing that was asked for stands here.

        :param wanted: what may stand here besides, in words: ``a name``.
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
        """A dotted name.

        :param what: what it is the name of, with its article.
        :param longest: how many parts it may have.
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
        """One name without dots.

        :param what: what it is, for the message.
        """
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
        """A string; the value is what it means."""
        token = self.current
        if token.kind is not TokenKind.STRING:
            raise self.unexpected(what)
        self.advance()
        return Piece(string_value(token.text)[0], token.start, token.end)

    def listed(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        """What stands in parentheses, separated by commas: one at least."""
        self.expect("(")
        items = [item()]
        while self.take(","):
            items.append(item())
        self.expect(")")
        return tuple(items)

    def group(self, start: int, key: Callable[[], Piece], value: Callable[[], Piece]) -> Group:
        """Pairs in parentheses, no key twice.

        :param start: where the clause begins.
        """

        def pair() -> Pair:
            left = key()
            self.expect("=")
            return Pair(left, value())

        pairs = self.listed(pair)
        self.once([pair.key for pair in pairs])
        return Group(pairs, start, self.previous_end)

    def options(self, start: int) -> Group:
        """``('key' = 'value', …)``."""
        return self.group(start, lambda: self.string("an option in quotes"), lambda: self.string("its value in quotes"))

    def once(self, pieces: list[Piece]) -> None:
        """Check that nothing is named twice."""
        first: dict[str, Piece] = {}
        for piece in pieces:
            before = first.setdefault(piece.value, piece)
            if before is not piece:
                line = self.text.count("\n", 0, before.start) + 1
                raise GrammarError(piece.start, f"{piece.value!r} stands here twice, first in line {line}")

    def query(self, start: int) -> Piece:
        """Everything up to the end of the statement, when it begins as a query does; its comments included.

        The place of it ends at its last word: the comments behind that are in its text alone.

        :param start: where a comment may stand that belongs to it.
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
        """A query is judged as a whole; that another statement begins in it is said best here."""
        first = self.current.word
        if first in ("CREATE", "ALTER", "DROP"):
            words = [token.word for token in self.tokens[self.position + 1 : self.position + 3]]
            if words in (["DYNAMIC", "TABLE"], ["MATERIALIZED", "TABLE"]):
                raise GrammarError(self.current.start, f"expected ';' before {first}: the statement before has no end")
