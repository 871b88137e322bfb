"""Names of tables as values: ``catalog.database.table``, quoting, and derived ids."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote as percent_quote

_PLAIN = re.compile(r"\w+", re.ASCII)
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")

LONGEST_NAME = 128
"""Maximum UTF-8 bytes of one name, so that DAG ids, assets and log lines have room for three names."""

_LONGEST_FOLDER = 200
"""Maximum characters of a folder name: file systems allow 255 bytes, and an id is appended."""

_JOINERS = "\u200c\u200d"
"""Invisible characters that are part of words in Persian and Indian languages."""


def quote(name: str) -> str:
    """Back-quote one name the way Spark SQL does."""
    return "`" + name.replace("`", "``") + "`"


def own_alias(database: str, table: str) -> str:
    """The alias of a table in an expanded query where its name may be ambiguous.

    It qualifies columns that were written with the full name of the table, so that a job can recognize them.
    """
    return f"{database}__{table}"


def literal(text: str) -> str:
    """Text as a string literal of Spark SQL."""
    # Spark would substitute ${name} even within a literal.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return f"'{escaped}'"


def split_name(text: str) -> tuple[str, ...]:
    """Split a dotted name into its parts; a part in back-quotes may hold dots.

    :raises ValueError: when the text is not a dotted name.
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace("``", "`") if match[1] else match[2].strip())
        position = match.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise ValueError(f"{text!r} is not a dotted name")
        position += 1
    if not parts or position != len(text) or not all(parts) or text.endswith("."):
        raise ValueError(f"{text!r} is not a dotted name")
    return tuple(parts)


def check_name(name: str) -> str:
    """Check a name of a catalog, database, table, view or function.

    :raises ValueError: with the reason when it is invalid.
    """
    if not name.strip("."):
        raise ValueError(f"{name!r} is no name; choose one that has letters or digits")
    for character in name:
        # Control characters and separators would add lines to a message; other invisible ones reorder or hide text.
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS:
            raise ValueError(f"a name may not hold the invisible character U+{ord(character):04X}; remove it")
    size = len(name.encode())
    if size > LONGEST_NAME:
        raise ValueError(f"a name has at most {LONGEST_NAME} bytes, and {name[:20]!r}... has {size}; choose a shorter one")
    return name


def folder_name(name: str) -> str:
    """A folder name that is unique for any name."""
    quoted = percent_quote(name, safe="")
    if set(quoted) <= {"."}:
        return quoted.replace(".", "%2E")
    if len(quoted) <= _LONGEST_FOLDER:
        return quoted
    return f"{quoted[:_LONGEST_FOLDER]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def quote_if_needed(name: str) -> str:
    """Back-quote one name unless it is plain letters, digits and underscores."""
    return name if _PLAIN.fullmatch(name) else quote(name)


def join_name(*parts: str) -> str:
    """Join parts to a dotted name; the inverse of :func:`split_name`."""
    return ".".join(map(quote_if_needed, parts))


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """A table, view or function within one catalog."""

    database: str
    name: str

    def __str__(self) -> str:
        return join_name(self.database, self.name)


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """The full name of a table; ``str`` returns the dotted form, which can be parsed again."""

    catalog: str
    database: str
    table: str

    @classmethod
    def parse(cls, text: str, *, catalog: str | None = None, database: str | None = None) -> TableIdentifier:
        """Parse a name of one, two or three parts, filling what is missing from the defaults.

        :raises ValueError: when the name is malformed or a missing part has no default.
        """
        parts = split_name(text)
        if len(parts) > 3:
            raise ValueError(f"{text!r} has {len(parts)} parts; a table name has at most three: catalog.database.table")
        if len(parts) < 3 and catalog is None:
            raise ValueError(f"{text!r} names no catalog and there is no default catalog")
        if len(parts) < 2 and database is None:
            raise ValueError(f"{text!r} names no database and there is no default database")
        return cls.completed(parts, str(catalog), str(database))

    @classmethod
    def completed(cls, parts: Sequence[str], catalog: str, database: str) -> TableIdentifier:
        """Complete a name of one, two or three parts with a catalog and a database."""
        return cls(*(catalog, database)[: 3 - len(parts)], *parts)

    @property
    def path(self) -> ObjectPath:
        """The name within its catalog."""
        return ObjectPath(self.database, self.table)

    @property
    def sql(self) -> str:
        """The name in Spark SQL, with every part back-quoted."""
        return ".".join(map(quote, (self.catalog, self.database, self.table)))

    @property
    def workflow_id(self) -> str:
        """The id of the workflow (Airflow: the DAG id) that refreshes this table."""
        readable = "__".join(("dynamic_table", self.catalog, self.database, self.table))
        # The readable id must be unique: a__b.c.t and a.b__c.t would have the same one.
        return self._id(readable, tuple(readable.split("__", 3)[1:]))

    @property
    def task_id(self) -> str:
        """The id of the task that refreshes this table in a workflow of several tables: its full name, where valid."""
        readable = ".".join((self.catalog, self.database, self.table))
        return self._id(readable, tuple(readable.split(".")))

    def _id(self, readable: str, read_back: tuple[str, ...]) -> str:
        """A valid, unique Airflow id: the readable one, with a digest if necessary."""
        safe = re.sub(r"[^\w.-]", "_", readable, flags=re.ASCII)
        if safe == readable and read_back == (self.catalog, self.database, self.table) and len(safe) <= 200:
            return safe
        return f"{safe[:200]}_{hashlib.sha256(str(self).encode()).hexdigest()[:8]}"

    def checked(self) -> TableIdentifier:
        """Return itself after checking each name.

        :raises ValueError: see :func:`check_name`.
        """
        for name in (self.catalog, self.database, self.table):
            check_name(name)
        return self

    def __str__(self) -> str:
        return join_name(self.catalog, self.database, self.table)


def dropped_rows_name(table: str) -> str:
    """The name of the table with the rows that the expectations of a table drop."""
    return f"{table}__dropped"


_LONGEST_BEGINNING = 20
"""Maximum characters of the table's name in its draft's name, for readability: PostgreSQL limits names to 63."""

_DRAFT = re.compile(r"[a-z0-9_]*__(new|old)_[0-9a-f]{32}")


def draft_name(table: str, token: str) -> str:
    """The name of a table while the CREATE TABLE AS of a token creates it."""
    return _name(table, "new", token)


def discarded_name(table: str, token: str) -> str:
    """The name of an aborted draft until its files are deleted."""
    return _name(table, "old", token)


def is_draft(name: str) -> bool:
    """Return whether a name is that of a draft, ignoring case."""
    return _DRAFT.fullmatch(name.lower()) is not None


def _name(table: str, word: str, token: str) -> str:
    beginning = re.sub(r"\W+", "_", table.lower(), flags=re.ASCII)[:_LONGEST_BEGINNING]
    digest = hashlib.sha256(f"{table}\0{token}".encode()).hexdigest()[:32]
    return f"{beginning}__{word}_{digest}"
