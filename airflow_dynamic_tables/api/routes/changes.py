"""Changing tables: suspended, resumed, dropped; and how what is declared differs from what is deployed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.api.answers import TABLE, Answer, DropAnswer, StateAnswer, examples
from airflow_dynamic_tables.api.desk import AtDesk, Desk, KnownTable
from airflow_dynamic_tables.api.questions import Drop, Name, Resumption, Suspension
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.services.changing.dropping import drop, drop_if_exists
from airflow_dynamic_tables.services.changing.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import FieldChange
from airflow_dynamic_tables.services.tables.owners import claimed, deployed_by, own_deployment

router = APIRouter()

_OWN_TEXT = ("query", "original_query")
"""Fields with the text of the query itself."""

_IN_FULL = ("resolved.query", "expanded_query")
"""Fields with the text of the query in which views are inlined."""

_UPSTREAM = "resolved.upstream"
"""The field with the tables that the query reads."""


class FieldAnswer(Answer):
    """One thing that a definition says otherwise than what is deployed; null: it says nothing."""

    model_config = examples({"name": "freshness", "deployed": "1 day", "declared": "1 hour"})

    name: str
    deployed: Any
    declared: Any


class TouchedAnswer(Answer):
    """A table that reads the changed one, directly or not, and its columns that may have other values; null: all."""

    model_config = examples({"table": "lake.sales.monthly_revenue", "columns": ["revenue"]})

    table: str
    columns: list[str] | None


class DiffAnswer(Answer):
    """How a table differs, as it is declared, from what is deployed."""

    model_config = examples(
        {
            "identifier": TABLE,
            "change": "METADATA",
            "place": "definitions/sales.yaml:12",
            "reason": None,
            "next": "apply registers it",
            "fields": [{"name": "freshness", "deployed": "1 day", "declared": "1 hour"}],
            "query": "",
            "columns": [],
            "downstream": [],
            "claimed": None,
        }
    )

    identifier: str
    change: str = Field(description="UNCHANGED, NEW, METADATA, COLUMNS, DATA, REBUILD, REMOVED or UNKNOWN.")
    place: str | None = Field(description="Where it is declared: file, from the folder of the definitions, and line.")
    reason: str | None
    next: str | None = Field(description="What applying it does, and what is left for a refresh.")
    fields: list[FieldAnswer]
    query: str = Field(description="How the text of the query differs, line by line.")
    columns: list[FieldAnswer] = Field(description="Columns and what becomes of them: types in Spark's words.")
    downstream: list[TouchedAnswer]
    claimed: str | None = Field(description="The two deployments that declare it, when there are two.")


@router.post("/v3/dynamic-tables/{table}/suspend", summary="Stop refreshing a table")
def suspend_table(desk: AtDesk, table: Name, suspension: Suspension) -> StateAnswer:
    """No refresh begins any more, but by hand with force; one that runs goes on to its end. Safe to repeat."""
    return _answer(suspend(desk.workspace, desk.deployed(table, Right.CHANGE), suspension.reason))


@router.post("/v3/dynamic-tables/{table}/resume", summary="Let it be refreshed again")
def resume_table(desk: AtDesk, table: Name, _resumption: Resumption) -> StateAnswer:
    """The next refresh makes up for what was missed. Safe to repeat."""
    return _answer(resume(desk.workspace, desk.deployed(table, Right.CHANGE)))


def _answer(change: StateChange) -> StateAnswer:
    return StateAnswer(
        identifier=str(change.table),
        before=change.before,
        now=change.now,
        reason=change.reason,
        workflow=change.workflow,
    )


@router.post("/v3/dynamic-tables/{table}/drop", summary="Drop it, with all its versions")
def drop_table(desk: AtDesk, table: Name, how: Drop) -> DropAnswer:
    """It goes from its catalog; its history stays, and so do its files without `purge`. While it is declared, its next refresh
    makes it anew.

    Refused while somebody refreshes it, or while a refresh of it is in quarantine.
    """
    identifier = desk.permitted(table, Right.DROP)
    dropped = (drop_if_exists if how.if_exists else drop)(desk.workspace, identifier, purge=how.purge)
    if dropped is None:
        return DropAnswer(identifier=str(identifier), dropped=False)
    deleted = dropped.purged.files
    return DropAnswer(identifier=str(identifier), dropped=True, location=dropped.folder, deleted_files=deleted)


@router.get("/v3/dynamic-tables/{table}/diff", summary="How it differs from what is deployed")
def diff(desk: AtDesk, table: Name) -> DiffAnswer:
    """What deploying the definition would do, the tables downstream that it touches, and which text changed.

    Tables that the caller may not look at are left out, and so is the text of views that the query reads.
    """
    known = desk.table(table, Right.READ)
    if known.definition is None:
        raise ConflictError(f"{known.identifier} is not declared where this server looks, so there is nothing to compare.")
    declared = desk.gateway.declared.all()
    (found,) = differences(desk.workspace, declared.definitions, [known.definition], is_complete=declared.is_complete)
    below = {one.identifier for one in desk.readable(desk.known(touched.table) for touched in found.downstream)}
    columns = [FieldAnswer(name=one.name, deployed=one.deployed, declared=one.declared) for one in found.columns]
    return DiffAnswer(
        **{name: getattr(found, name) for name in ("change", "reason", "next")},
        query=found.query if any(one.name in _OWN_TEXT for one in found.fields) else "",
        claimed=_claimed(desk, known) if found.claimed else None,
        place=f"{known.definition.file}:{known.definition.line}",
        identifier=str(found.identifier),
        fields=[_field(desk, one) for one in found.fields],
        columns=columns,
        downstream=[
            TouchedAnswer(table=str(touched.table), columns=None if touched.columns is None else list(touched.columns))
            for touched in found.downstream
            if touched.table in below
        ],
    )


def _field(desk: Desk, change: FieldChange) -> FieldAnswer:
    """One field; of the query in full only that it changed, and no table that the caller may not look at."""
    if change.name in _IN_FULL:
        return FieldAnswer(name=change.name, deployed=None, declared=None)
    if change.name != _UPSTREAM:
        return FieldAnswer.model_validate(change)
    names = {*(change.deployed or ()), *(change.declared or ())}
    hidden = {str(name) for name in desk.hidden(map(TableIdentifier.parse, names))}
    deployed, declared = ([one for one in names or () if one not in hidden] for names in (change.deployed, change.declared))
    return FieldAnswer(name=change.name, deployed=deployed, declared=declared)


def _claimed(desk: Desk, known: KnownTable) -> str:
    """The two deployments that declare a table, by their files without the folders of the server."""
    owner = deployed_by(known.entry.definition) if known.entry is not None else None
    if owner is None or known.definition is None:
        return f"{known.identifier} is declared by two deployments."
    own = own_deployment(desk.workspace.ledger.installation(), known.definition)
    return claimed(known.identifier, *(replace(one, file=Path(one.file).name) for one in (owner, own)))
