"""Mistakes of the user, and where they stand."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.core.limits import MESSAGE_CHARACTERS, MISTAKES_PER_FILE
from airflow_dynamic_tables.redaction import without_secrets

log = logging.getLogger(__name__)

_LONGEST_GUESSED = 100
"""Letters of a name that may be a mistyped one; the time to compare grows with their square."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake of the user, and where: line and column count from 1."""

    path: Path
    line: int
    column: int
    message: str

    def __post_init__(self) -> None:
        """Keep the message on one line, of a length that somebody reads, and without secrets, whatever it quotes."""
        object.__setattr__(self, "message", without_secrets(shown(self.message)))

    def __str__(self) -> str:
        return f"{shown(str(self.path))}:{self.line}:{self.column}: {self.message}"


@dataclass(slots=True)
class Mistakes:
    """What is wrong with many files: of each file the first mistakes that were noticed, each once, and whether there are more."""

    _by_file: dict[Path, set[Mistake]] = field(default_factory=dict)
    _overflowing: set[Path] = field(default_factory=set)

    def add(self, mistakes: Iterable[Mistake]) -> None:
        """Take mistakes of any files."""
        for mistake in mistakes:
            noticed = self._by_file.setdefault(mistake.path, set())
            # What an anchor names is read, and found wrong, once for every alias.
            if len(noticed) < MISTAKES_PER_FILE:
                noticed.add(mistake)
            elif mistake not in noticed:
                self._overflowing.add(mistake.path)

    def room(self, path: Path) -> int:
        """How many more of that file are worth to be described: those that are told, and one to know that there are more."""
        return 0 if path in self._overflowing else MISTAKES_PER_FILE + 1 - len(self._by_file.get(path, ()))

    def in_order(self) -> tuple[Mistake, ...]:
        """All of them by path, line and column; in a file with more, the last one says so."""
        told = [mistake for noticed in self._by_file.values() for mistake in noticed]
        for path in self._overflowing:
            last = max(self._by_file[path])
            told.append(Mistake(path, last.line, last.column + 1, f"there are more than these {MISTAKES_PER_FILE} mistakes"))
        return tuple(sorted(told))


@contextmanager
def understood(mistakes: Mistakes, at: Callable[[str], Mistake]) -> Iterator[None]:
    """Make a mistake of whatever goes wrong within, for errors that nobody thought of: one entry must not hide all others."""
    try:
        yield
    except Exception as error:
        log.debug("Not expected:", exc_info=error)
        mistakes.add([at(f"cannot be understood: {type(error).__name__}: {error}")])


def shown(text: str) -> str:
    """A text as a message: on one line, with signs that nobody sees written out, and without its middle when it is long."""
    if len(text) > MESSAGE_CHARACTERS:
        # What is wrong stands at the beginning, and what to do at the end.
        end = MESSAGE_CHARACTERS // 3
        text = f"{text[: MESSAGE_CHARACTERS - end - 3]} … {text[-end:]}"
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _written_out(sign) for sign in text)


def _written_out(sign: str) -> str:
    return sign.encode("unicode_escape", errors="backslashreplace").decode("ascii")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name that looks most alike, or nothing."""
    if len(name) > _LONGEST_GUESSED:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
