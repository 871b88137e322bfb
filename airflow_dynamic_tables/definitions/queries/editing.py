"""Queries with every name in full.

A query is never printed from its syntax tree, only edited where a table is named: comments, hints and functions that the
parser does not know survive as the user wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.definitions.queries.text import Analysis, Qualifier, Reference, Target, analyse


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
