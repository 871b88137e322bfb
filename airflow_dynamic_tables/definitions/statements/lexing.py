"""Lexer of statements: words, names, strings and signs as Spark reads them; comments are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class TokenKind(Enum):
    """Kind of a token; ``UNENDED`` is an unterminated string, name or comment."""

    WORD = "word"
    QUOTED_NAME = "quoted name"
    STRING = "string"
    SIGN = "sign"
    UNENDED = "unended"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as written, and its start and end offsets.

    ``word`` is a word in upper case, or a sign unchanged. It is empty for quoted tokens, which are never keywords.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    word: str = ""


# Possessive quantifiers prevent backtracking: a file of quotes is read in linear time.
_PIECE = re.compile(
    r"""
    (?P<blank> \s++ | --[^\n]*+ )
    | (?P<comment> /\* )
    | (?P<string>
        [rR]'[^']*+' | [rR]"[^"]*+"
        | '(?: [^'\\]++ | \\. | '' )*+' | "(?: [^"\\]++ | \\. | "" )*+"
        | \$(?P<tag>[A-Za-z]*+)\$ .*? \$(?P=tag)\$
      )
    | (?P<name> `(?: [^`]++ | `` )*+` )
    | (?P<word> \w++ )
    | (?P<unended> ['"`] | \$[A-Za-z]*+\$ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_KINDS = {
    "string": TokenKind.STRING,
    "name": TokenKind.QUOTED_NAME,
    "word": TokenKind.WORD,
    "sign": TokenKind.SIGN,
}


def tokens_of(text: str) -> list[Token]:
    """Return all tokens, followed by END. An unterminated token extends to the end of the text."""
    return list(tokens_in(text))


def tokens_in(text: str) -> Iterator[Token]:
    """Iterate over the tokens, see :func:`tokens_of`."""
    yield from _written(text)
    yield Token(TokenKind.END, "", len(text), len(text))


def _written(text: str) -> Iterator[Token]:
    position = 0
    while piece := _PIECE.match(text, position):
        start, position = piece.span()
        kind = piece.lastgroup or ""
        if kind == "comment":
            end = _end_of_comment(text, start)
            if end is None:
                yield Token(TokenKind.UNENDED, text[start:], start, len(text))
                return
            position = end
        elif kind == "unended":
            yield Token(TokenKind.UNENDED, text[start:], start, len(text))
            return
        elif kind != "blank":
            word = piece[0].upper() if kind in ("word", "sign") else ""
            yield Token(_KINDS[kind], piece[0], start, position, word)


def _end_of_comment(text: str, start: int) -> int | None:
    """Return the end offset of a bracketed comment, which may be nested."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))|''|\"\"|.", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def string_value(text: str) -> tuple[str, list[int]]:
    """Return the value of a string token, and for each of its characters the offset in the text of the token.

    Escapes follow Spark: ``\\n`` is a line end, ``''`` a quote; ``r'…'`` and ``$$…$$`` have no escapes.
    """
    if text[0] in "rR$":
        first = 2 if text[0] != "$" else text.index("$", 1) + 1
        last = len(text) - first + (text[0] != "$")
        return text[first:last], list(range(first, last))
    characters: list[str] = []
    places: list[int] = []
    for match in _ESCAPE.finditer(text, 1, len(text) - 1):
        meant = _meant(match, text[0])
        characters.append(meant)
        places += [match.start()] * len(meant)
    return "".join(characters), places


def _meant(match: re.Match[str], quote: str) -> str:
    code = match[1] or match[2]
    if code:
        # Code points above the maximum and lone surrogates are invalid.
        return chr(int(code, 16)) if int(code, 16) < 0x110000 and not 0xD800 <= int(code, 16) < 0xE000 else match[0]
    if match[3]:
        return chr(int(match[3], 8))
    if match[4]:
        # LIKE wildcards keep their backslash.
        return f"\\{match[4]}" if match[4] in "%_" else _ESCAPED.get(match[4], match[4])
    return quote if match[0] == quote * 2 else match[0]
