"""Declarations as text, changed as ALTER says: what it does not name stays as it is written, comments included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_dynamic_tables.core.identifiers import TableIdentifier, literal
from airflow_dynamic_tables.definitions.statements.values import (
    AlterDynamicTable,
    AlterQuery,
    CreateDynamicTable,
    Group,
    Pair,
    Piece,
    ResetOptions,
    SetFreshness,
    SetOptions,
    SetRefreshMode,
)

Edit = tuple[int, int, str]
"""Where a part of a text begins and ends, and what takes its place."""


def edited(text: str, edits: Iterable[Edit]) -> str:
    """A text with parts of it replaced; they do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def altered(text: str, declared: CreateDynamicTable, alter: AlterDynamicTable, said: str) -> str:
    """The text of a file whose declaration says what a statement wants it to say.

    :param text: of the file.
    :param declared: the declaration in it.
    :param alter: one that changes what is declared, but no name.
    :param said: the text in which ``alter`` stands.
    """
    return edited(text, _edits(declared, alter, said))


def renamed(text: str, declared: CreateDynamicTable, name: TableIdentifier, former: str | None = None) -> str:
    """The text of a file whose declaration has another name.

    :param former: the name that the table had, where it is said that its data follow.
    """
    said = [] if former is None else _with_options(declared, {"renamed_from": ("'renamed_from'", literal(former))})
    return edited(text, [(declared.name.start, declared.name.end, str(name)), *said])


def without(text: str, declared: CreateDynamicTable) -> str:
    """The text of a file without a declaration, its semicolon and the line end behind it."""
    end = declared.end
    rest = text[end:].lstrip()
    if rest.startswith(";"):
        end = len(text) - len(rest) + 1
    if text[end:].startswith("\n"):
        end += 1
    return text[: declared.start] + text[end:]


def _edits(declared: CreateDynamicTable, alter: AlterDynamicTable, said: str) -> list[Edit]:
    if isinstance(alter, SetFreshness):
        return [_clause(declared, declared.freshness, "FRESHNESS", _written(alter.freshness, said))]
    if isinstance(alter, SetRefreshMode):
        return [_clause(declared, declared.refresh_mode, "REFRESH_MODE", _written(alter.refresh_mode, said))]
    if isinstance(alter, AlterQuery):
        return [(declared.query.start, declared.query.end, _written(alter.query, said))]
    if isinstance(alter, SetOptions):
        return _set(declared, alter.options.pairs, said)
    if isinstance(alter, ResetOptions):
        return _reset(declared, {key.value for key in alter.keys})
    raise TypeError(f"{type(alter).__name__} changes no declaration")


def _clause(declared: CreateDynamicTable, value: Piece | None, keyword: str, new: str) -> Edit:
    """Change the value of a clause, or add the clause."""
    if value is not None:
        return value.start, value.end, new
    return declared.as_at, declared.as_at, f"{keyword} = {new}\n"


def _set(declared: CreateDynamicTable, pairs: Iterable[Pair], said: str) -> list[Edit]:
    return _with_options(declared, {pair.key.value: (_written(pair.key, said), _written(pair.value, said)) for pair in pairs})


def _with_options(declared: CreateDynamicTable, options: Mapping[str, tuple[str, str]]) -> list[Edit]:
    """Say options, each by its name: how name and value are written."""
    known = {pair.key.value: pair.value for pair in declared.options.pairs} if declared.options else {}
    edits: list[Edit] = []
    added: list[str] = []
    for name, (key, value) in options.items():
        if name in known:
            edits.append((known[name].start, known[name].end, value))
        else:
            added.append(f"{key} = {value}")
    if added and declared.options is not None:
        last = declared.options.pairs[-1].value.end
        edits.append((last, last, "".join(f", {option}" for option in added)))
    elif added:
        edits.append((declared.as_at, declared.as_at, f"WITH ({', '.join(added)})\n"))
    return edits


def _reset(declared: CreateDynamicTable, keys: set[str]) -> list[Edit]:
    if declared.options is None:
        return []
    pairs = declared.options.pairs
    kept = [pair for pair in pairs if pair.key.value not in keys]
    if not kept:
        return [_whole(declared.options)]
    edits: list[Edit] = []
    for number, pair in enumerate(pairs):
        if pair.key.value in keys:
            # With the comma before it; the first ones with the comma behind them.
            is_before_kept = all(earlier.key.value in keys for earlier in pairs[:number])
            start = pair.key.start if is_before_kept else pairs[number - 1].value.end
            edits.append((start, pairs[number + 1].key.start if is_before_kept else pair.value.end, ""))
    return edits


def _whole(options: Group) -> Edit:
    return options.start, options.end, ""


def _written(piece: Piece, said: str) -> str:
    return said[piece.start : piece.end]
