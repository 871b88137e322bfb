"""Aliases of the tables of an expanded query, and the rewritten qualifiers of its columns.

Spark resolves ``raw.orders.id`` by the full name of the table, which an expanded query replaces by an alias. Where another
table or alias of the same name, or a struct in a subquery, could capture it, the table gets an alias that is unique in the
query. All other tables keep their names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_dynamic_tables.core.identifiers import TableIdentifier, own_alias, quote
from airflow_dynamic_tables.definitions.queries.text import Analysis, Qualifier, QueryProblem, Target

Edit = tuple[int, int, str]
"""Start and end offset of a part of the query, and its replacement."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The alias of every reference, the replacements of qualifiers, and the qualifiers whose meaning cannot be preserved."""

    aliases: tuple[str, ...]
    edits: tuple[Edit, ...]
    problems: tuple[QueryProblem, ...]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """References of one table, and the number of parts of a qualifier that name the table."""

    numbers: tuple[int, ...]
    width: int


def name_tables(analysis: Analysis, targets: Sequence[Target]) -> Naming:
    """Choose the alias of every reference.

    :param targets: the target of each reference, in the same order.
    """
    query = _Query(analysis, targets)
    meanings = [query.by_full_name(qualifier) for qualifier in analysis.qualifiers]
    renamed = {
        number
        for qualifier, meaning in zip(analysis.qualifiers, meanings, strict=True)
        if isinstance(meaning, _Meaning) and qualifier.scope is not None
        for number in meaning.numbers
        if query.can_be_captured(number, qualifier.scope)
    }
    aliases = query.aliases(renamed)
    edits: list[Edit] = []
    problems: list[QueryProblem] = []
    for qualifier, meaning in zip(analysis.qualifiers, meanings, strict=True):
        outcome = query.by_name(qualifier, renamed) if meaning is None else meaning
        if isinstance(outcome, QueryProblem):
            problems.append(outcome)
        elif outcome is not None:
            end = qualifier.parts[outcome.width - 1].end
            edits.append((qualifier.parts[0].start, end, quote(aliases[outcome.numbers[0]])))
    return Naming(aliases, tuple(edits), tuple(problems))


class _Query:
    """The tables of a query as column qualifiers resolve them."""

    def __init__(self, analysis: Analysis, targets: Sequence[Target]) -> None:
        self._analysis = analysis
        self._targets = targets
        self._named: dict[tuple[int | None, tuple[str, ...]], list[int]] = {}
        for number, reference in enumerate(analysis.references):
            if reference.alias is None:
                for scope in (reference.scope, None):
                    for width in (1, 2, 3):
                        self._named.setdefault((scope, self._full_name(number)[-width:]), []).append(number)
        self._text = analysis.text.lower()
        self._written = Counter(part.text.lower() for qualifier in analysis.qualifiers for part in qualifier.parts)
        self._words = Counter(re.findall(r"\w+", self._text))

    def by_full_name(self, qualifier: Qualifier) -> _Meaning | QueryProblem | None:
        """Return the nearest table that a qualifier names with its database; a problem when it is ambiguous."""
        nearest = None
        first = qualifier.parts[0].text.lower()
        is_column = len(qualifier.parts) > 1 and first in self._analysis.column_aliases
        hidden = is_column and qualifier.of_result
        for scope in self._outwards(qualifier.scope):
            meaning = self._matching(qualifier, scope)
            if meaning is None:
                hidden = hidden or (nearest is None and (is_column or self._is_name(first, scope)))
            elif hidden or (nearest is not None and not self._same(nearest, meaning)) or not self._same(meaning, meaning):
                return _ambiguous(qualifier)
            else:
                nearest = nearest or meaning
        return nearest

    def can_be_captured(self, number: int, scope: int) -> bool:
        """Return whether something else may capture the name of a table.

        That is so if the table is read in an outer scope, or the name is not unique.
        """
        reference = self._analysis.references[number]
        name = self._name(number)
        ours = self._written[name] + sum(part.text.lower() == name for part in reference.parts)
        mentioned = self._words[name] if re.fullmatch(r"\w+", name) else self._text.count(name)
        return reference.scope != scope or mentioned > ours

    def by_name(self, qualifier: Qualifier, renamed: set[int]) -> _Meaning | QueryProblem | None:
        """Return the table that a qualifier names without its database, if that table is renamed.

        Only the SELECT that reads the table is considered: in outer scopes, a column of a nearer table takes precedence.
        """
        name = qualifier.parts[0].text.lower()
        for scope in self._outwards(qualifier.scope):
            numbers = tuple(self._named.get((scope, (name,)), ()))
            others = scope is not None and name in self._analysis.scopes[scope].names
            if not numbers and not others:
                continue
            if renamed.isdisjoint(numbers):
                return None
            meaning = _Meaning(numbers, 1)
            if others or scope != qualifier.scope or qualifier.of_result or not self._same(meaning, meaning):
                return None if scope is None else _ambiguous(qualifier)
            return meaning
        return None

    def aliases(self, renamed: set[int]) -> tuple[str, ...]:
        """Return the alias of every reference; each table of ``renamed`` has one unique alias wherever it is read."""
        own: dict[TableIdentifier, str] = {}
        taken: set[str] = set()
        for number in sorted(renamed):
            table = self._targets[number].identifier
            if table not in own:
                alias = own_alias(table.database, table.table)
                while alias.lower() in self._text or alias.lower() in taken:
                    alias += "_"
                own[table] = alias
                taken.add(alias.lower())
        return tuple(
            own[target.identifier] if number in renamed else reference.alias or reference.parts[-1].text
            for number, (reference, target) in enumerate(zip(self._analysis.references, self._targets, strict=True))
        )

    def _outwards(self, scope: int | None) -> Iterator[int | None]:
        yield scope
        while scope is not None and (scope := self._analysis.scopes[scope].outer) is not None:
            yield scope

    def _matching(self, qualifier: Qualifier, scope: int | None) -> _Meaning | None:
        names = tuple(part.text.lower() for part in qualifier.parts)
        for width in (3, 2):
            numbers = self._named.get((scope, names[:width])) if len(names) >= width else None
            if numbers:
                return _Meaning(tuple(numbers), width)
        return None

    def _full_name(self, number: int) -> tuple[str, str, str]:
        table = self._targets[number].identifier
        return table.catalog.lower(), table.database.lower(), self._name(number)

    def _name(self, number: int) -> str:
        return self._analysis.references[number].parts[-1].text.lower()

    def _is_name(self, name: str, scope: int | None) -> bool:
        """Return whether a table, an alias or a common table expression of a FROM clause has that name."""
        return (scope, (name,)) in self._named or (scope is not None and name in self._analysis.scopes[scope].names)

    def _same(self, first: _Meaning, second: _Meaning) -> bool:
        return len({self._targets[number].identifier for number in (*first.numbers, *second.numbers)}) == 1


def _ambiguous(qualifier: Qualifier) -> QueryProblem:
    name = ".".join(part.text for part in qualifier.parts)
    advice = "give each of them an alias in FROM, and name columns by it"
    return QueryProblem(qualifier.parts[0].start, f"{name!r} may mean more than one table or column here; {advice}")
