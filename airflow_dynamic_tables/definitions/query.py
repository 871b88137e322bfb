"""Queries as text with known places: which tables they read, what they return, and how they read with every name in full.

A query is never printed from its syntax tree, only edited where a table is named: comments, hints and functions that the
parser does not know survive as the user wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote


@dataclass(frozen=True, slots=True)
class Span:
    """One name of the query, at its character offsets."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A table that the query reads.

    ``alias_at`` is where an alias has to be put when it has no ``alias``; tables of one FROM clause have the same ``scope``.
    """

    parts: tuple[Span, ...]
    alias: str | None
    alias_at: int
    scope: int


@dataclass(frozen=True, slots=True)
class Qualifier:
    """Names before a column (``raw.orders`` of ``raw.orders.amount``), and the references they may mean, nearest first."""

    parts: tuple[Span, ...]
    references: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a query, at a character offset."""

    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the text of a query says by itself.

    ``text`` is the query without a final semicolon, ``outputs`` its column names (``None`` for one that has no plain name),
    or ``None`` when they depend on the tables. ``calls`` are the names of the functions that SQL itself does not have.
    """

    text: str
    references: tuple[Reference, ...] = ()
    qualifiers: tuple[Qualifier, ...] = ()
    outputs: tuple[str | None, ...] | None = None
    calls: tuple[tuple[Span, ...], ...] = ()
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data; :meth:`from_json` gives the same value back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Analysis:
        """:raises ValueError: when it is not what :meth:`to_json` gave."""
        try:
            return cls(
                text=data["text"],
                references=tuple(Reference(**{**item, "parts": _spans(item)}) for item in data["references"]),
                qualifiers=tuple(Qualifier(_spans(item), tuple(item["references"])) for item in data["qualifiers"]),
                outputs=None if data["outputs"] is None else tuple(data["outputs"]),
                calls=tuple(tuple(Span(**span) for span in call) for call in data["calls"]),
                problems=tuple(Problem(**item) for item in data["problems"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an analysis: {error}") from error


def _spans(item: Mapping[str, Any]) -> tuple[Span, ...]:
    return tuple(Span(**span) for span in item["parts"])


@dataclass(frozen=True, slots=True)
class Condition:
    """What the text of a condition over one row says: the columns it looks at."""

    columns: tuple[Span, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """What a reference means: a table, and the SQL that takes the place of its name."""

    identifier: TableIdentifier
    sql: str


def analyse(query: str) -> Analysis:
    """Parse a query of Spark SQL; what is wrong with it is in ``problems``."""
    # sqlglot takes half a second to import, and most processes find every analysis in the cache.
    from airflow_dynamic_tables.definitions import parsing

    return parsing.analyse(query)


def analyse_condition(text: str) -> Condition:
    """Parse a condition of Spark SQL over the columns of one row; what is wrong with it is in ``problems``."""
    from airflow_dynamic_tables.definitions import parsing

    return parsing.analyse_condition(text)


def expand(analysis: Analysis, targets: Sequence[Target]) -> str:
    """The query with every reference replaced by its target.

    Every table keeps the name by which its columns are qualified: ``orders.amount`` and ``raw.orders.amount`` mean the same
    as before.
    """
    aliases = _aliases(analysis.references, targets)
    edits = []
    for reference, target, alias in zip(analysis.references, targets, aliases, strict=True):
        edits.append((reference.parts[0].start, reference.parts[-1].end, target.sql))
        if reference.alias is None:
            edits.append((reference.alias_at, reference.alias_at, f" AS {quote(alias)}"))
    for qualifier in analysis.qualifiers:
        for number in qualifier.references:
            if width := _matching(qualifier, analysis.references[number], targets[number].identifier):
                last = qualifier.parts[width - 1]
                edits.append((qualifier.parts[0].start, last.end, quote(aliases[number])))
                break
    return _edit(analysis.text, edits)


def replace_tables(expanded_query: str, replacements: Mapping[TableIdentifier, str]) -> str:
    """Replace full table names by other SQL: names of temporary views, or the queries of views.

    :param expanded_query: what :func:`expand` gave.
    """
    analysis = analyse(expanded_query)
    edits = []
    for reference in analysis.references:
        if len(reference.parts) == 3:
            sql = replacements.get(TableIdentifier(*(part.text for part in reference.parts)))
            if sql is not None:
                edits.append((reference.parts[0].start, reference.parts[-1].end, sql))
    return _edit(analysis.text, edits)


def replace_functions(query: str, replacement: Callable[[tuple[str, ...]], str | None]) -> str:
    """Replace the names of functions that SQL itself does not have.

    :param replacement: from the parts of a name to the SQL that takes its place, ``None`` to leave it.
    """
    analysis = analyse(query)
    edits = []
    for call in analysis.calls:
        sql = replacement(tuple(part.text for part in call))
        if sql is not None:
            edits.append((call[0].start, call[-1].end, sql))
    return _edit(analysis.text, edits)


def same_query(first: str, second: str) -> bool:
    """Whether two queries differ in nothing but white space, comments and the case of keywords."""
    from airflow_dynamic_tables.definitions import parsing

    return first == second or parsing.same(first, second)


def _aliases(references: Sequence[Reference], targets: Sequence[Target]) -> list[str]:
    """The name by which the columns of each table are qualified; two tables of one name in one FROM clause get two."""
    names = [reference.alias or reference.parts[-1].text for reference in references]
    uses = Counter((reference.scope, name.lower()) for reference, name in zip(references, names, strict=True))
    return [
        f"{target.identifier.database}__{name}" if reference.alias is None and uses[reference.scope, name.lower()] > 1 else name
        for reference, target, name in zip(references, targets, names, strict=True)
    ]


def _matching(qualifier: Qualifier, reference: Reference, identifier: TableIdentifier) -> int:
    """How many names of the qualifier name that table: 3, 2 or 0."""
    names = [part.text.lower() for part in qualifier.parts]
    full = [identifier.catalog.lower(), identifier.database.lower(), reference.parts[-1].text.lower()]
    if names[:3] == full:
        return 3
    return 2 if names[:2] == full[1:] else 0


def _edit(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Replace the spans; edits at one place are made in the order given."""
    pieces = []
    position = 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]])
