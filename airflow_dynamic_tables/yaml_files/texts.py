"""Files as text, and places in it."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from airflow_dynamic_tables.core.limits import FILE_BYTES
from airflow_dynamic_tables.core.mistakes import Mistake

_SEEN = {
    "'": re.compile(r"''|\S"),
    '"': re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|\S", re.DOTALL),
}
"""What stands in quoted scalars for one character that is no white space, but for some escapes."""

_PLAIN = re.compile(r"\S")

_BLANK_ESCAPES = frozenset("nrtvfNLP_ \n\t")


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def read_text(path: Path) -> tuple[str | None, list[Mistake]]:
    """Read a UTF-8 file; a file that cannot be read is a mistake at its first bad character."""
    try:
        # A pipe would be waited for, and a device need not end.
        if not stat.S_ISREG(path.stat().st_mode):
            return None, [Mistake(path, 1, 1, "cannot be read: it is no file of text")]
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        return None, [Mistake(path, 1, 1, f"cannot be read: {getattr(error, 'strerror', None) or error}")]
    return text_of(path, content)


def text_of(path: Path, content: bytes) -> tuple[str | None, list[Mistake]]:
    """As :func:`read_text`, of what stands in the file or is to stand there."""
    if len(content) > FILE_BYTES:
        return None, [Mistake(path, 1, 1, f"has more than {FILE_BYTES:,} bytes; split it into several files")]
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        return None, [Mistake(path, *line_and_column(before, len(before)), "is not UTF-8 text; save the file as UTF-8")]
    if (lone := text.find("\r")) >= 0:
        message = "has a carriage return that is no line end; save the file with the line ends LF or CRLF"
        return None, [Mistake(path, *line_and_column(text, lone), message)]
    return text, []


def places_of_characters(text: str, start: int, end: int, style: str | None) -> list[int]:
    """Where in a file the characters of a scalar stand, but for white space, which indentation and folding change.

    :param style: as PyYAML has it: the sign that begins the scalar, none for a plain one.
    """
    if style in ("|", ">"):
        start = max(text.find("\n", start), start)
    elif style in _SEEN:
        start += 1
        end -= 1
    seen = _SEEN.get(style or "", _PLAIN)
    return [match.start() for match in seen.finditer(text, start, end) if not _is_blank(match)]


def _is_blank(match: re.Match[str]) -> bool:
    """Whether an escape in double quotes means white space."""
    kind = match.lastindex
    if kind is None:
        return False
    return match[4] in _BLANK_ESCAPES if kind == 4 else chr(int(match[kind], 16)).isspace()
