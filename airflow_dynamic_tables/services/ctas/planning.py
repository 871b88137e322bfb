"""Decision whether a table is created, replaced or kept; made before any change, and the same in a dry run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow_dynamic_tables.catalog.base import ReadableWritableCatalog
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable, CatalogTable, CatalogView, is_one_off
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, sink_formats
from airflow_dynamic_tables.core.identifiers import TableIdentifier, is_draft
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.refresh.spark_settings import conf_problem
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import (
    ConfigurationError,
    SchemaEvolutionError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedError,
)
from airflow_dynamic_tables.formats.base import LakeTable
from airflow_dynamic_tables.formats.registry import default_format
from airflow_dynamic_tables.services.ctas.selecting import ReadTable, read
from airflow_dynamic_tables.services.ctas.wanted import CtasOutcome, Purpose, WantedTable
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision; ``read`` is the table with its query, unless an existing table is kept."""

    outcome: CtasOutcome
    why: str
    read: ReadTable | None = None


def decide(workspace: Workspace, definitions: Definitions, wanted: WantedTable) -> Decision:
    """Check everything that can be checked before a job runs.

    :raises DefinitionError: with all mistakes of the query.
    :raises ConfigurationError: if the name or format is invalid, or the definitions contain the name.
    :raises TableAlreadyExistsError: if an object with that name exists and must be kept.
    :raises UnsupportedError: if the catalog is read-only, does not support the name, or cannot create the table atomically.
    :raises SchemaEvolutionError: if the existing table cannot be replaced by the new one.
    """
    identifier = wanted.identifier
    if is_draft(identifier.table):
        raise ConfigurationError(f"{identifier.table!r} is a name of tables that are being made; choose another one.")
    _check_settings(wanted)
    _check_undefined(definitions, identifier)
    entry = _entry(workspace, identifier)
    if entry is not None and wanted.purpose is Purpose.CREATE_IF_NOT_EXISTS:
        return Decision(CtasOutcome.EXISTS, f"{identifier} is there already, {_kind(entry)}; it stays as it is")
    if entry is not None:
        _check_replaceable(identifier, entry, wanted.purpose)
    catalog = workspace.catalog(identifier.catalog)
    table_format = _format(wanted, entry, default_format(catalog.stores()))
    table = workspace.table(identifier, table_format)
    _check_one_step(wanted, catalog, table, table_format)
    if entry is None:
        catalog.check_path(identifier.path)  # the draft has another name, so otherwise only the commit would check this one
        try:
            table.check_makeable()
        except TableAlreadyExistsError as error:
            if wanted.purpose is not Purpose.CREATE_IF_NOT_EXISTS:
                raise
            return Decision(CtasOutcome.EXISTS, str(error).rstrip("."))
    wanted_table = read(workspace, definitions, wanted, table_format)
    if entry is None:
        return Decision(CtasOutcome.CREATED, f"there is no {identifier} yet", wanted_table)
    layout = table.layout()
    if layout is not None and not layout.can_have(wanted.keys, layout.rebuild):
        keys = f"({', '.join(layout.partition_keys)}), and is to be by ({', '.join(wanted.keys)})"
        way_out = f"{layout.limit} Keep its keys, or drop the table (dynamic-tables drop) and make it again."
        raise SchemaEvolutionError(f"{identifier} is partitioned by {keys}. {way_out.lstrip()}")
    return Decision(CtasOutcome.REPLACED, f"{identifier} was made by CREATE TABLE AS", wanted_table)


def _check_one_step(wanted: WantedTable, catalog: ReadableWritableCatalog, table: LakeTable, table_format: str) -> None:
    """Check that the table is created atomically, so that no reader sees a part of it.

    :raises UnsupportedError: if the catalog cannot create it atomically.
    """
    if not (table.makes_entries or (table.is_atomic and catalog.publishes_drafts)):
        raise UnsupportedError(
            f"{wanted.identifier}: catalog {wanted.identifier.catalog} cannot make a table of {table_format} files in one "
            f"step, and a part of it would be visible; use {DEFAULT_FORMAT}"
            f"{'' if catalog.publishes_drafts else ' in another catalog'}."
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan for a wanted table. If an existing table is kept, only the name, purpose, outcome and reason are set."""

    table: TableIdentifier
    purpose: Purpose
    would_be: CtasOutcome
    why: str
    format: str | None = None
    partition_keys: tuple[str, ...] = ()
    reads: tuple[TableIdentifier, ...] = ()
    statement: str | None = None


def planned(wanted: WantedTable, decision: Decision) -> Planned:
    """Return a decision for display."""
    known = Planned(wanted.identifier, wanted.purpose, decision.outcome, decision.why)
    if decision.read is None:
        return known
    table = decision.read.table
    return replace(
        known, format=table.format, partition_keys=table.partition_keys, reads=table.upstream, statement=table.expanded_query
    )


def _check_settings(wanted: WantedTable) -> None:
    try:
        ZoneInfo(wanted.timezone)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ConfigurationError(f"unknown time zone {wanted.timezone!r}; write one such as Europe/Berlin.") from error
    if problem := conf_problem(wanted.spark.conf):
        raise ConfigurationError(f"Spark's setting {problem}.")


def _check_undefined(definitions: Definitions, identifier: TableIdentifier) -> None:
    """Check that no definition has the same name, because each table would hide the other."""
    known = definitions.tables.get(identifier)
    if known is not None:
        raise ConfigurationError(
            f"{identifier} is defined as a dynamic table at {known.path}:{known.line}; refresh that, or choose another name."
        )
    source = definitions.sources.get(identifier)
    if source is not None and not source.is_view and source.path is not None:
        raise ConfigurationError(f"{identifier} is declared as a source at {source.file}:{source.line}; choose another name.")


def _entry(workspace: Workspace, identifier: TableIdentifier) -> AnyTable | None:
    """Return the catalog entry with that name.

    :raises UnsupportedError: if the catalog is read-only.
    """
    try:
        return workspace.catalog(identifier.catalog).get_table(identifier.path)
    except TableNotFoundError:
        return None


def _kind(entry: AnyTable) -> str:
    if isinstance(entry, CatalogView):
        return "a view"
    return "a dynamic table" if isinstance(entry, CatalogDynamicTable) else "a table"


def _check_replaceable(identifier: TableIdentifier, entry: AnyTable, purpose: Purpose) -> None:
    if purpose is not Purpose.CREATE_OR_REPLACE:
        todo = "replace it, or choose another name" if is_one_off(entry) else "choose another name"
        raise TableAlreadyExistsError(f"{identifier} exists already, {_kind(entry)}; {todo}.")
    if isinstance(entry, CatalogDynamicTable):
        raise TableAlreadyExistsError(
            f"{identifier} is a dynamic table, and its definition says what is in it: change that, or drop the table first."
        )
    if isinstance(entry, CatalogView):
        raise TableAlreadyExistsError(f"{identifier} is a view; drop it first, or choose another name.")
    if not is_one_off(entry):
        raise TableAlreadyExistsError(
            f"{identifier} was not made by CREATE TABLE AS, so its rows are not replaced: drop it first, or choose another name."
        )


def _format(wanted: WantedTable, entry: AnyTable | None, default: str) -> str:
    formats = sink_formats()
    if wanted.format is not None and wanted.format not in formats:
        hint = did_you_mean(wanted.format, formats) or f"; use {' | '.join(formats)}."
        raise ConfigurationError(f"unknown format {wanted.format!r}{hint}")
    if not isinstance(entry, CatalogTable):
        return wanted.format or default
    if wanted.format not in (None, entry.format):
        raise SchemaEvolutionError(
            f"{wanted.identifier} is a table of format {entry.format} and cannot become one of {wanted.format} in one step: "
            "drop it first, or choose another name."
        )
    return entry.format
