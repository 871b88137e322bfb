"""Commands on dynamic tables: listing, describing, suspending, renaming and dropping them."""

from __future__ import annotations

import getpass
import socket
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from math import floor
from pathlib import Path
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable, JobState
from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import LIMIT, ONE_TABLE, OUTPUT, STATE, TABLE, TABLES, TOKEN, Argument, flag
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.documentation import write_documentation
from airflow_dynamic_tables.cli.project import (
    definitions,
    definitions_if_any,
    identifier,
    is_defined,
    named_tables,
    project_of,
)
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE
from airflow_dynamic_tables.cli.state import owner_of, workspace_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.exceptions import TableNotFoundError
from airflow_dynamic_tables.formats.small_files import PartitionFiles
from airflow_dynamic_tables.ledger.base import Refresh
from airflow_dynamic_tables.services import status
from airflow_dynamic_tables.services.catalogs import ObjectChange
from airflow_dynamic_tables.services.continuous.streams.places import stream_progress
from airflow_dynamic_tables.services.documentation import document
from airflow_dynamic_tables.services.lifecycle.dropping import drop, drop_if_exists
from airflow_dynamic_tables.services.lifecycle.registration import adopt, register, rename, renamed
from airflow_dynamic_tables.services.lifecycle.suspending import StateChange, resume, suspend
from airflow_dynamic_tables.services.maintenance.compacting import CompactedPartition, compact, count_files
from airflow_dynamic_tables.services.maintenance.sweeping import recover, sweep, upgrade
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.project import load_tests
from airflow_dynamic_tables.services.refresh.planning import look_at_sources
from airflow_dynamic_tables.services.refresh.saved_costs import MOST_COMPARED, compared_refreshes, saved_costs
from airflow_dynamic_tables.services.status import TableDetails, TableStatus
from airflow_dynamic_tables.services.tables.rollback import RollbackRequest, rollback
from airflow_dynamic_tables.services.tables.source_reads import pace_of
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.leases import check_droppable
from airflow_dynamic_tables.services.writes.quarantine import publish, reject
from airflow_dynamic_tables.services.writes.settling import result_of

_LIST = (
    "identifier",
    "defined",
    "state",
    "refresh_mode",
    "freshness",
    "version",
    "data_timestamp",
    "lag",
    "late",
    "last_refresh",
)
_IF_ANY = ("watermark", "missing", "problem", "behind", "dag_paused")
_READERS = ("table", "version", "read")
_VERSIONS = ("number", "data_timestamp", "committed_at", "snapshot", "token")
_ROWS = 20
"""Default number of rows of a version that are shown."""
_HISTORY = ("started_at", "table", "action", "state", "schedule_time", "version", "rows", "seconds", "rows_per_second", "error")
_COMPARED_REFRESH = ("finished_at", "table", "action", "refreshes", "seconds", "full_seconds", "bytes", "full_bytes")
_SAVED = (
    *("table", "month", "refreshes", "no_data", "not_measured"),
    *("seconds", "full_seconds", "saved_seconds", "bytes", "full_bytes", "saved_bytes"),
)
_SOURCES = ("source", "version", "number", "number_now", "partitions", "last_partition", "moved")


@command("list", "list dynamic tables: version, freshness, last refresh", (*STATE, OUTPUT), is_daily=True)
def list_tables(arguments: Namespace) -> int:
    """List the defined dynamic tables, and those in their catalogs that are no longer defined."""
    defined, sound = definitions(arguments)
    with workspace_of(arguments, "Reading the tables") as workspace:
        listed = status.list_tables(workspace, defined.tables, complete=sound)
    if arguments.output == "table":
        some = [name for name in _IF_ANY if any(getattr(table, name) for table in listed.tables)]
        output.rows([_at_a_glance(table) for table in listed.tables], (*_LIST, *some))
    else:
        output.listing(listed.tables, arguments.output)
    if not listed.tables and not listed.problems and sound:
        print("There are no dynamic tables: none is defined, and the catalogs have none.", file=sys.stderr)
    for name, problem in listed.problems.items():
        print(f"Cannot read {name}: {problem}", file=sys.stderr)
    return OK if sound and not listed.problems else FAILED


@command(
    "docs",
    "write pages that document all tables, for a browser",
    (
        Argument(("into",), "where to write; an earlier documentation there is replaced", {"metavar": "FOLDER"}),
        *STATE,
    ),
)
def write_docs(arguments: Namespace) -> int:
    """Write static pages of all defined tables: columns with comments and origins, sources and readers, tests, freshness.

    The pages need no server, and show the state at this time.
    """
    defined, tests, mistakes = load_tests(project_of(arguments))
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    with workspace_of(arguments, "Reading the tables") as workspace:
        found = document(workspace, defined, [(test.table.identifier, test.name) for test in tests])
        page = write_documentation(found, Path(arguments.into), workspace.now())
    print(f"Wrote {page}: {output.counted(len(found.tables), 'table')}, {output.counted(len(found.sources), 'source')}.")
    return FAILED if mistakes else OK


def _at_a_glance(table: TableStatus) -> dict[str, object]:
    """Return the summary of a table for a terminal: lags are durations, and ``refreshing`` describes the state of its job."""
    shown = dict(items(table))
    shown.pop("job_state")
    shown.pop("freshness_seconds")
    shown["behind"] = tuple(str(parent) for parent in table.behind)
    lags = {name: _duration(shown.pop(f"{name}_seconds")) for name in ("lag", "allowed_lag")}
    shares = {name: _percentage(shown.pop(name)) for name in ("share_of_day", "share_of_week")}
    refreshing = table.job_state.words if table.job_state else None
    if table.dag_paused and table.job_state is not JobState.SUSPENDED:
        refreshing = f"{refreshing or 'declared'}, but the DAG {table.workflow_id} is paused"
    return {**shown, "refreshing": refreshing, **lags, **shares}


def _percentage(share: float | None) -> str | None:
    """Format a share; only a complete one is 100 %."""
    return None if share is None else f"{floor(share * 1000) / 10:g} %"


def _duration(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


@command(
    "show",
    "show one dynamic table: columns, versions, refreshes, rows",
    (
        TABLE,
        Argument(("--rows",), "also print that many rows", {"type": argument_types.positive, "default": 0, "metavar": "N"}),
        Argument(
            ("--version",),
            "print rows of that version (default: the current one; 20 rows without --rows)",
            {"type": argument_types.positive, "metavar": "N"},
        ),
        flag("--check-sources", "also check whether its sources changed since the current version read them"),
        LIMIT,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def show_table(arguments: Namespace) -> int:
    """Show one dynamic table of a catalog with its latest versions and refreshes and, with --rows or --version, the first
    rows of a version.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        now = _sources_now(arguments, workspace, name) if arguments.check_sources else None
        defined, is_complete = definitions_if_any(arguments)
        is_there = name in defined.tables or (False if is_complete else None)
        try:
            details = status.show_table(workspace, name, arguments.limit, defined=is_there, sources_now=now)
        except TableNotFoundError as error:
            if not is_there:
                raise
            hint = f"It is defined: its first refresh creates it, and so does: dynamic-tables create {name}"
            raise TableNotFoundError(f"{error} {hint}") from error
        wanted = arguments.rows or (_ROWS if arguments.version else 0)
        details = replace(
            details,
            read_by=tuple(status.readers_of(workspace, name, defined.downstream(name))),
            stream=stream_progress(workspace, name),
            first_rows=tuple(status.sample(workspace, name, wanted, arguments.version)) if wanted else (),
        )
    if arguments.output == "table":
        _print_table(details)
    else:
        output.record(details, arguments.output)
    return OK


def _sources_now(arguments: Namespace, workspace: Workspace, name: TableIdentifier) -> dict[str, SourceState]:
    """Return the current state of a table's sources; only its definition contains their locations."""
    defined, _ = definitions(arguments)
    return look_at_sources(workspace, named_table(defined, str(name)), defined.sources)


def _print_table(details: TableDetails) -> None:
    entry = details.table
    glance = {**_at_a_glance(details.status), "partition_keys": entry.partition_keys, "comment": entry.comment}
    # A table that is not dynamic has no schedule, so it has no state, and most of these fields are empty.
    is_dynamic = isinstance(entry, CatalogDynamicTable)
    output.lines(
        {name: value for name, value in glance.items() if is_dynamic or (value not in (None, "", (), 0) and name != "state")}
    )
    for title, records, columns in (
        ("columns", entry.columns, ("name", "type", "comment")),
        ("sources of the current version", details.sources, _SOURCES),
        ("read by", details.read_by, _READERS),
        ("versions", details.versions, _VERSIONS),
        ("refreshes", [_summed(refresh) for refresh in details.refreshes], _columns(details.refreshes)),
        ("rows", details.first_rows, ()),
    ):
        if records:
            print(f"\n{title}:")
            output.rows(records, columns)
    if details.stream is not None:
        print("\nstream:")
        output.record(details.stream, "table")


def _summed(refresh: Refresh) -> dict[str, object]:
    pace = pace_of(refresh)
    violated = [str(expectation) for expectation in refresh.expectations if expectation.violations]
    summed = {
        "error": output.shortened(refresh.error),
        "seconds": round(pace.seconds, 1),
        "rows_per_second": pace.rows_per_second,
        "expectations": violated,
    }
    return {**items(refresh), **summed}


def _columns(refreshes: Iterable[Refresh]) -> tuple[str, ...]:
    """Return the columns to show; expectations only if one was violated, because they take much room."""
    violated = any(expectation.violations for refresh in refreshes for expectation in refresh.expectations)
    return (*_HISTORY, "expectations") if violated else _HISTORY


@command(
    "history",
    "list the latest refreshes and rollbacks, newest first",
    (
        ONE_TABLE,
        LIMIT,
        Argument(
            ("--saved",),
            "show instead what refreshes took beside the last complete one: each of them, or by table and month",
            {"choices": ["refresh", "month"]},
        ),
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def history(arguments: Namespace) -> int:
    """List the latest refreshes with action, reason, result, rows, bytes and the seconds of each step."""
    name = identifier(arguments, arguments.table) if arguments.table else None
    with workspace_of(arguments) as workspace:
        refreshes = workspace.ledger.list_refreshes(name, arguments.limit if arguments.saved is None else MOST_COMPARED)
    if arguments.saved is not None:
        return _saved(arguments, refreshes)
    if not refreshes:
        print(f"No refresh{f' of {name}' if name else ''} is recorded.", file=sys.stderr)
    if arguments.output == "table":
        output.rows([_summed(refresh) for refresh in refreshes], _columns(refreshes))
    else:
        output.listing(refreshes, arguments.output)
    return OK


def _saved(arguments: Namespace, refreshes: Sequence[Refresh]) -> int:
    """Print the saved cost of each refresh, up to the limit, or of all by table and month."""
    each = arguments.saved == "refresh"
    found = compared_refreshes(refreshes)[: arguments.limit] if each else saved_costs(refreshes)
    if arguments.output != "table":
        output.listing(found, arguments.output)
        return OK
    shown = [{name: "not measured" if value is None else value for name, value in items(one).items()} for one in found]
    output.rows(shown, _COMPARED_REFRESH if each else _SAVED)
    return OK


@command("create", "register defined tables in their catalogs", (TABLES, *STATE, OUTPUT))
def create_tables(arguments: Namespace) -> int:
    """Register dynamic tables in their catalogs, or alter them where the definition changed.

    The first refresh does this too; no data is written.
    """
    defined, sound = definitions(arguments)
    tables = named_tables(defined, arguments.tables)
    with workspace_of(arguments, "Registering the tables") as workspace:
        done = [ObjectChange(str(table.identifier), register(workspace, table).value) for table in tables]
    output.listing(done, arguments.output)
    return OK if sound or arguments.tables else FAILED


@command("adopt", "turn an existing Hive table into a dynamic table", (TABLE, *STATE, OUTPUT))
def adopt_table(arguments: Namespace) -> int:
    """Turn an existing table of the Hive metastore into the dynamic table that is defined under its name.

    Its rows stay, and every refresh replaces the partitions that it plans. Columns, partition keys and format must be
    those of the query.
    """
    defined, _ = definitions(arguments)
    table = named_table(defined, arguments.table)
    with workspace_of(arguments) as workspace:
        registration = adopt(workspace, table)
    output.record(ObjectChange(str(table.identifier), registration.value), arguments.output)
    return OK


@command("gc", "clean up after refreshes that died, and expire old versions", (*STATE, OUTPUT))
def gc(arguments: Namespace) -> int:
    """Finish or undo each refresh whose process is gone.

    Expire versions beyond the retention of their tables, delete unreferenced files, and prune old history. Running
    refreshes are not touched. Safe to run at any time.
    """
    with workspace_of(arguments, "Cleaning up") as workspace:
        report = sweep(workspace)
    output.record(report, arguments.output)
    return FAILED if report.failed else OK


@command(
    "compact",
    "merge small files of a dynamic table",
    (
        TABLE,
        flag("--dry-run", "only print how many files each partition has, and which partitions are due"),
        *STATE,
        OUTPUT,
    ),
)
def compact_table(arguments: Namespace) -> int:
    """Merge small files in each partition that has too many, as gc does.

    This makes no version: rows and history stay, and readers are not affected. Prints files and bytes of each partition
    before and after, and why a partition was left; exits with 1 if one is still due. Safe to run at any time.
    """
    name = identifier(arguments, arguments.table)
    if arguments.dry_run:
        return _count_files(arguments, name)
    with workspace_of(arguments, f"Compacting {name}") as workspace:
        before = count_files(workspace, name)
        done = compact(workspace, name)
        after = {describe(one.partition): one for one in count_files(workspace, name)}
    for why in done.left:
        print(why, file=sys.stderr)
    output.listing([_compacted(one, after.get(describe(one.partition))) for one in before], arguments.output)
    return FAILED if any(one.is_due for one in after.values()) else OK


def _count_files(arguments: Namespace, name: TableIdentifier) -> int:
    with workspace_of(arguments) as workspace:
        counted = count_files(workspace, name)
    output.listing(counted, arguments.output)
    return OK


def _compacted(before: PartitionFiles, after: PartitionFiles | None) -> CompactedPartition:
    """Return the file counts of a partition before and after; zero after, if the partition was removed meanwhile."""
    files, size = (after.files, after.bytes) if after is not None else (0, 0)
    return CompactedPartition(before.partition, before.files, files, before.bytes, size, before.why_not)


@command("publish", "commit a refresh that is in quarantine", (TOKEN, *STATE, OUTPUT))
def publish_stage(arguments: Namespace) -> int:
    """Commit a refresh that its row count put into quarantine.

    Everything else is checked again. Refused if newer data of the same partitions has been committed since.
    """
    with workspace_of(arguments, f"Publishing stage {arguments.token}") as workspace:
        version = publish(workspace, arguments.token)
        done = result_of(workspace, version.token, version)
    output.written(done, arguments.output)
    return OK


@command("abort", "delete a refresh that is in quarantine", (TOKEN, *STATE))
def abort_stage(arguments: Namespace) -> int:
    """Delete a refresh that its row count put into quarantine. The table stays as it is."""
    with workspace_of(arguments) as workspace:
        reject(workspace, arguments.token, f"aborted by {getpass.getuser()}@{socket.gethostname()}")
    print(f"Stage {arguments.token} is aborted; its files are deleted.", file=sys.stderr)
    return OK


@command(
    "rollback",
    "make an earlier version current again",
    (
        TABLE,
        Argument(("--to",), "the version to restore", {"type": argument_types.positive, "metavar": "VERSION", "required": True}),
        flag("--with-columns", "bring its columns and partition keys back, too, where the table has others now"),
        *STATE,
        OUTPUT,
    ),
)
def rollback_table(arguments: Namespace) -> int:
    """Restore an earlier version in one step, as a new version with its content, data timestamp and sources.

    No data is copied. Fails while the table is being refreshed; the next scheduled refresh works on top of it.
    """
    token = str(uuid4())
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments, f"Rolling {name} back") as workspace:
        version = rollback(
            workspace, RollbackRequest(name, arguments.to, token, owner_of("rollback", token), arguments.with_columns)
        )
        done = result_of(workspace, token, version)
    output.written(done, arguments.output)
    return OK


@command("db upgrade", "create the tables of the databases, or migrate them to this release", STATE)
def upgrade_databases(arguments: Namespace) -> int:
    """Create the tables of the ledger and of the `sql` catalogs, or migrate them to this release.

    SQLite is migrated automatically; run this once per release for PostgreSQL.
    """
    with workspace_of(arguments, "Migrating the databases") as workspace:
        upgrade(workspace)
    print("Ledger and catalogs are up to date.", file=sys.stderr)
    return OK


@command(
    "suspend",
    "stop refreshing a table",
    (
        TABLE,
        Argument(("--reason",), "the reason, which the history and list show", {"metavar": "TEXT", "default": ""}),
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def suspend_table(arguments: Namespace) -> int:
    """Stop refreshing a table, by schedule, by hand and in continuous mode.

    A running refresh is completed. Versions and history stay, and readers are not affected. Five failures of scheduled
    refreshes in a row do the same.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = suspend(workspace, name, arguments.reason)
    _print(change, arguments.output)
    return OK


@command("resume", "refresh a suspended table again", (TABLE, *STATE, OUTPUT), is_daily=True)
def resume_table(arguments: Namespace) -> int:
    """Refresh a suspended table again, from the next run of its DAG on. Earlier failures no longer count."""
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        change = resume(workspace, name)
    _print(change, arguments.output)
    return OK


def _print(change: StateChange, style: str) -> None:
    output.record(change, style)
    if change.workflow:
        print(change.workflow, file=sys.stderr)


@command(
    "rename",
    "give a dynamic table another name",
    (TABLE, Argument(("new",), "its new name; the database stays", {"metavar": "NEW"}), *STATE, OUTPUT),
)
def rename_table(arguments: Namespace) -> int:
    """Give a dynamic table another name within its database; data, versions and history follow.

    Refused while it is being refreshed, or when a refresh of it is in quarantine. Change the name in its definition, too:
    if the former name is still defined, its next refresh creates a new table of that name.
    """
    name = identifier(arguments, arguments.table)
    new = renamed(name, arguments.new)
    with workspace_of(arguments) as workspace:
        done = rename(workspace, name, new)
    output.record(done, arguments.output)
    if is_defined(arguments, name):
        print(f"The definitions still say {name}: change the name there, or its next refresh makes a new table.", file=sys.stderr)
    return OK


@command("recover", "finish or undo refreshes that were interrupted", (TABLE, *STATE, OUTPUT))
def recover_table(arguments: Namespace) -> int:
    """Finish or undo each refresh of a table whose process is gone, and finish an interrupted rename, as the next refresh
    and gc do.

    Running refreshes are not touched. Prints what was done, and what is left and why; exits with 1 if something is left.
    Safe to run at any time.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        recovered = recover(workspace, name)
    output.record(recovered, arguments.output)
    return FAILED if recovered.left else OK


@command(
    "drop",
    "drop a dynamic table",
    (
        TABLE,
        flag("--yes", "drop it; without this, only check that it could be dropped"),
        flag("--if-exists", "a missing table is no error"),
        flag("--purge", "also delete its files"),
        *STATE,
        OUTPUT,
    ),
)
def drop_table(arguments: Namespace) -> int:
    """Drop a dynamic table from its catalog, with all its versions.

    Refused while it is being refreshed, or when a refresh of it is in quarantine. Data files stay without --purge, its
    history in any case. If it is still defined, its next refresh creates it again.
    """
    name = identifier(arguments, arguments.table)
    with workspace_of(arguments) as workspace:
        if not arguments.yes:
            return _would_drop(workspace, name, if_exists=arguments.if_exists)
        dropped = (drop_if_exists if arguments.if_exists else drop)(workspace, name, purge=arguments.purge)
    output.record(dropped, arguments.output)
    if not dropped.dropped:
        print(f"There is no {name}; nothing to do.", file=sys.stderr)
        return OK
    if dropped.location is not None:
        when = "before a new table of this name finds their rows" if dropped.is_still_read else "when they are no longer needed"
        print(f"The maintenance leaves the files in {dropped.location} alone: delete them {when}.", file=sys.stderr)
    if is_defined(arguments, name) is not False:
        print("If the table is still defined, its next refresh will recreate it.", file=sys.stderr)
    return OK


def _would_drop(workspace: Workspace, name: TableIdentifier, *, if_exists: bool) -> int:
    if if_exists and not workspace.catalog(name.catalog).table_exists(name.path):
        print(f"There is no {name}; nothing to do.", file=sys.stderr)
        return OK
    check_droppable(workspace, workspace.look_up(name).identifier)
    print(f"{name} would be dropped with all its versions; say --yes to do it.", file=sys.stderr)
    return USAGE
