"""Mistakes in user input, with their positions."""

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
"""Maximum characters of a name for suggestions; the time of a comparison grows with their square."""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake in user input, and its position: line and column count from 1."""

    path: Path
    line: int
    column: int
    message: str

    def __post_init__(self) -> None:
        """Reduce the message to one line of limited length without secrets."""
        object.__setattr__(self, "message", without_secrets(shown(self.message)))

    def __str__(self) -> str:
        return f"{shown(str(self.path))}:{self.line}:{self.column}: {self.message}"


@dataclass(slots=True)
class Mistakes:
    """The mistakes of many files: the first distinct mistakes of each file, and whether there are more."""

    _by_file: dict[Path, set[Mistake]] = field(default_factory=dict)
    _overflowing: set[Path] = field(default_factory=set)

    def add(self, mistakes: Iterable[Mistake]) -> None:
        """Add mistakes of any files."""
        for mistake in mistakes:
            noticed = self._by_file.setdefault(mistake.path, set())
            # The target of a YAML anchor is validated once per alias.
            if len(noticed) < MISTAKES_PER_FILE:
                noticed.add(mistake)
            elif mistake not in noticed:
                self._overflowing.add(mistake.path)

    def room(self, path: Path) -> int:
        """The number of further mistakes of a file to collect: up to the limit, and one more to detect the overflow."""
        return 0 if path in self._overflowing else MISTAKES_PER_FILE + 1 - len(self._by_file.get(path, ()))

    def in_order(self) -> tuple[Mistake, ...]:
        """All mistakes by path, line and column; an overflowing file has a final mistake that reports it."""
        told = [mistake for noticed in self._by_file.values() for mistake in noticed]
        for path in self._overflowing:
            last = max(self._by_file[path])
            told.append(Mistake(path, last.line, last.column + 1, f"there are more than these {MISTAKES_PER_FILE} mistakes"))
        return tuple(sorted(told))


@contextmanager
def understood(mistakes: Mistakes, at: Callable[[str], Mistake]) -> Iterator[None]:
    """Convert unexpected exceptions to a mistake, so that one entry does not hide the others."""
    try:
        yield
    except Exception as error:
        log.debug("Not expected:", exc_info=error)
        mistakes.add([at(f"cannot be understood: {type(error).__name__}: {error}")])


def shown(text: str) -> str:
    """A text as a message: one line, with escaped non-printable characters, and with the middle of a long text omitted."""
    if len(text) > MESSAGE_CHARACTERS:
        # The mistake is at the beginning, the remedy at the end.
        end = MESSAGE_CHARACTERS // 3
        text = f"{text[: MESSAGE_CHARACTERS - end - 3]} … {text[-end:]}"
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _written_out(sign) for sign in text)


def _written_out(sign: str) -> str:
    return sign.encode("unicode_escape", errors="backslashreplace").decode("ascii")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` with the most similar known name, or an empty text."""
    if len(name) > _LONGEST_GUESSED:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""
