"""Rewriting of queries: expansion to full names, replacement of tables and functions, and Spark's verdict on the syntax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_dynamic_tables.clients.spark_parser import Refusal
from airflow_dynamic_tables.core.identifiers import TableIdentifier, quote
from airflow_dynamic_tables.definitions.queries.naming import Edit, name_tables
from airflow_dynamic_tables.definitions.queries.text import Analysis, QueryProblem, Reference, Target

_ADVICE = "Spark can parse this query, but the tables it reads cannot be told; write this part another way"


def judge(query: str, analysis: Analysis, ask: Callable[[], Refusal | None], version: str) -> Analysis:
    """Return the analysis with the syntax errors reported by Spark in place of those of sqlglot.

    :param ask: asks Spark. It is not called for a query that has other problems, because these are more specific.
    :param version: of that Spark; another one may know the syntax.
    """
    if any(not problem.unread for problem in analysis.problems):
        return analysis
    refusal = ask()
    if refusal is not None:
        return Analysis(analysis.text, problems=(_problem(query, refusal, analysis, version),))
    return replace(analysis, problems=tuple(map(_not_understood, analysis.problems)))


def _problem(query: str, refusal: Refusal, analysis: Analysis, version: str) -> QueryProblem:
    """Return the problem that Spark reported; if it has no position, at the position where sqlglot failed."""
    message = f"bad SQL: Spark {version} cannot parse this: {refusal.message}"
    if refusal.place is None:
        return QueryProblem(analysis.problems[0].offset if analysis.problems else 0, message)
    line, column = refusal.place
    start = sum(len(before) + 1 for before in query.split("\n")[:line])
    return QueryProblem(min(start + column, len(query)), message)


def _not_understood(problem: QueryProblem) -> QueryProblem:
    return QueryProblem(problem.offset, f"{_ADVICE} ({problem.message.removeprefix('bad SQL: ')})")


def expand(analysis: Analysis, targets: Sequence[Target]) -> str:
    """Replace every table reference of the query by its target, see :func:`expansion`."""
    return edited(analysis.text, expansion(analysis, targets))


def expansion(analysis: Analysis, targets: Sequence[Target]) -> list[Edit]:
    """Return the edits that replace every table reference of a query by its target.

    Column references keep their meaning: ``orders.amount`` and ``raw.orders.amount`` are qualified by the alias of their
    table.

    :param analysis: must have no :func:`unclear_names`.
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
    """Return the replacement of the keyword of ``TABLE orders``. Clauses of a pipe resolve the table by name only after FROM."""
    is_piped = text[reference.alias_at :].lstrip().startswith("|>")
    return "FROM" if is_piped and text[: reference.keyword_at].rstrip()[-1:] in ("", "(", ")") else "SELECT * FROM"


def unclear_names(analysis: Analysis, targets: Sequence[Target]) -> tuple[QueryProblem, ...]:
    """Return the column qualifiers that become ambiguous after the expansion; such a query cannot be expanded."""
    return name_tables(analysis, targets).problems


def replace_tables(analysis: Analysis, replacements: Mapping[TableIdentifier, str]) -> str:
    """Replace full table names by other SQL: names of temporary views, or the queries of views.

    :param analysis: of the result of :func:`expand`.
    """
    return edited(analysis.text, table_edits(analysis, replacements))


def table_edits(analysis: Analysis, replacements: Mapping[TableIdentifier, str]) -> list[Edit]:
    """Return the edits of :func:`replace_tables`."""
    edits: list[Edit] = []
    for reference in analysis.references:
        if len(reference.parts) == 3:
            sql = replacements.get(TableIdentifier(*(part.text for part in reference.parts)))
            if sql is not None:
                edits.append((reference.parts[0].start, reference.parts[-1].end, sql))
    return edits


def replace_functions(analysis: Analysis, replacement: Callable[[tuple[str, ...]], str | None]) -> str:
    """Replace the names of functions that are not built into SQL.

    :param replacement: returns the SQL that replaces the parts of a name, ``None`` to keep it.
    """
    edits = []
    for call in analysis.calls:
        sql = replacement(tuple(part.text for part in call))
        if sql is not None:
            edits.append((call[0].start, call[-1].end, sql))
    return edited(analysis.text, edits)


def offset_before(edits: Iterable[Edit], offset: int) -> int:
    """Map an offset in an edited text to the offset in the original text."""
    moved = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        if offset < start + moved:
            break
        if offset < start + moved + len(new):
            return start
        moved += len(new) - (end - start)
    return offset - moved


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Replace the spans; edits at the same offset are applied in the order given."""
    pieces = []
    position = 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]])
