"""Routes that suspend, resume and drop tables, and the diff of declared and deployed tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_dynamic_tables.api.access import Right
from airflow_dynamic_tables.api.desk import AtDesk, Desk, KnownTable
from airflow_dynamic_tables.api.questions import Drop, Name, Resumption, Suspension
from airflow_dynamic_tables.api.results import ResultRouter
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConflictError
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Difference, FieldChange
from airflow_dynamic_tables.services.lifecycle.dropping import Dropped, drop, drop_if_exists
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.tables.entries import claimed, deployed_by, own_deployment

router = ResultRouter()

_OWN_TEXT = ("query", "original_query")
"""Fields with the text of the query."""

_IN_FULL = ("resolved.query", "expanded_query")
"""Fields with the text of the query after views were inlined."""

_UPSTREAM = "resolved.upstream"
"""The field with the tables that the query reads."""


@router.post("/v3/dynamic-tables/{table}/suspend", summary="Suspend a table")
def suspend_table(desk: AtDesk, table: Name, suspension: Suspension) -> StateChange:
    """No further refresh starts unless it is forced; a running refresh continues to its end. Safe to repeat."""
    return suspend(desk.workspace, desk.deployed(table, Right.CHANGE), suspension.reason)


@router.post("/v3/dynamic-tables/{table}/resume", summary="Resume a table")
def resume_table(desk: AtDesk, table: Name, _resumption: Resumption) -> StateChange:
    """The next refresh makes up for missed ticks. Safe to repeat."""
    return resume(desk.workspace, desk.deployed(table, Right.CHANGE))


@router.post("/v3/dynamic-tables/{table}/drop", summary="Drop a table with all its versions")
def drop_table(desk: AtDesk, table: Name, how: Drop) -> Dropped:
    """Remove a table from its catalog. Its history stays, and its files stay without `purge`. If it is still declared, its next
    refresh creates it again.

    Refused while the table is being refreshed, or while a refresh of it is in quarantine.
    """
    identifier = desk.permitted(table, Right.DROP)
    return (drop_if_exists if how.if_exists else drop)(desk.workspace, identifier, purge=how.purge)


@router.get("/v3/dynamic-tables/{table}/diff", summary="Compare a definition with the deployed table")
def diff(desk: AtDesk, table: Name) -> Difference:
    """The changes that deploying the definition would make, and the tables downstream that they affect.

    Tables that the caller may not read are omitted, and so is the text of views that the query reads.
    """
    known = desk.table(table, Right.READ)
    if known.definition is None:
        raise ConflictError(
            f"{known.identifier} is not declared in the definitions of this server, so there is nothing to compare."
        )
    declared = desk.gateway.declared.all()
    (found,) = differences(desk.workspace, declared.definitions, [known.definition], is_complete=declared.is_complete)
    below = {one.identifier for one in desk.readable(desk.known(touched.table) for touched in found.downstream)}
    return replace(
        found,
        query=found.query if any(one.name in _OWN_TEXT for one in found.fields) else "",
        claimed=_claimed(desk, known) if found.claimed else None,
        place=f"{known.definition.file}:{known.definition.line}",
        fields=tuple(_field(desk, one) for one in found.fields),
        downstream=tuple(touched for touched in found.downstream if touched.table in below),
    )


def _field(desk: Desk, change: FieldChange) -> FieldChange:
    """Return one field; a query is only reported as changed, and tables that the caller may not read are left out."""
    if change.name in _IN_FULL:
        return FieldChange(change.name, None, None)
    if change.name != _UPSTREAM:
        return change
    names = {*(change.deployed or ()), *(change.declared or ())}
    hidden = {str(name) for name in desk.hidden(map(TableIdentifier.parse, names))}
    deployed, declared = ([one for one in names or () if one not in hidden] for names in (change.deployed, change.declared))
    return FieldChange(change.name, deployed, declared)


def _claimed(desk: Desk, known: KnownTable) -> str:
    """Return the two deployments that declare a table, by their files, without the folders of the server."""
    owner = deployed_by(known.entry.definition) if known.entry is not None else None
    if owner is None or known.definition is None:
        return f"{known.identifier} is declared by two deployments."
    own = own_deployment(desk.workspace.ledger.installation(), known.definition)
    return claimed(known.identifier, *(replace(one, file=Path(one.file).name) for one in (owner, own)))
