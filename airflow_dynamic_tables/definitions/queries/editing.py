"""Queries with every name in full.

A query is never printed from its syntax tree, only edited where a table is named: comments, hints and functions that the
parser does not know survive as the user wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.definitions.queries.naming import Edit, name_tables
from airflow_dynamic_tables.definitions.queries.text import Analysis, Problem, Reference, Target, analyse


def expand(analysis: Analysis, targets: Sequence[Target]) -> str:
    """The query with every reference replaced by its target, see :func:`expansion`."""
    return edited(analysis.text, expansion(analysis, targets))


def expansion(analysis: Analysis, targets: Sequence[Target]) -> list[Edit]:
    """What replaces every reference of a query by its target.

    Columns mean the same as before: ``orders.amount`` and ``raw.orders.amount`` are qualified by the alias of their table.

    :param analysis: has no :func:`unclear_names`.
    """
    naming = name_tables(analysis, targets)
    edits = list(naming.edits)
    for reference, target, alias in zip(analysis.references, targets, naming.aliases, strict=True):
        edits.append((reference.parts[0].start, reference.parts[-1].end, target.sql))
        if reference.keyword_at is not None:
            edits.append((reference.keyword_at, reference.keyword_at + len("TABLE"), _read_all(analysis.text, reference)))
        if reference.alias is None:
            edits.append((reference.alias_at, reference.alias_at, f" AS {quote(alias)}"))
    return edits


def _read_all(text: str, reference: Reference) -> str:
    """What stands for the keyword of ``TABLE orders``. The clauses of a pipe know the table by its name only behind FROM."""
    is_piped = text[reference.alias_at :].lstrip().startswith("|>")
    return "FROM" if is_piped and text[: reference.keyword_at].rstrip()[-1:] in ("", "(", ")") else "SELECT * FROM"


def unclear_names(analysis: Analysis, targets: Sequence[Target]) -> tuple[Problem, ...]:
    """Names before columns that may mean two things once every table has one name: the query cannot be expanded."""
    return name_tables(analysis, targets).problems


def replace_tables(expanded_query: str, replacements: Mapping[TableIdentifier, str]) -> str:
    """Replace full table names by other SQL: names of temporary views, or the queries of views.

    :param expanded_query: what :func:`expand` gave.
    """
    return edited(expanded_query, table_edits(expanded_query, replacements))


def table_edits(expanded_query: str, replacements: Mapping[TableIdentifier, str]) -> list[Edit]:
    """What :func:`replace_tables` does."""
    analysis = analyse(expanded_query)
    edits: list[Edit] = []
    for reference in analysis.references:
        if len(reference.parts) == 3:
            sql = replacements.get(TableIdentifier(*(part.text for part in reference.parts)))
            if sql is not None:
                edits.append((reference.parts[0].start, reference.parts[-1].end, sql))
    return edits


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
    return edited(analysis.text, edits)


def offset_before(edits: Iterable[Edit], offset: int) -> int:
    """The offset in a text of what stands at an offset of the edited text."""
    moved = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if offset < start + moved:
            break
        if offset < start + moved + len(new):
            return start
        moved += len(new) - (end - start)
    return offset - moved


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Replace the spans; edits at one place are made in the order given."""
    pieces = []
    position = 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]])
