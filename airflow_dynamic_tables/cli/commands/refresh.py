"""``refresh``, ``verify``, ``why``: without Airflow, with spark-submit as a child process or a Spark Connect server."""

from __future__ import annotations

import os
import signal
import sys
from _thread import interrupt_main
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from random import randrange
from threading import Event
from typing import Any, TypeVar
from uuid import uuid4
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.cli import arguments as argument_types
from airflow_dynamic_tables.cli import output
from airflow_dynamic_tables.cli.arguments import FORCE, MASTER, OUTPUT, PARTITION, SCHEDULE_TIME, STATE, TABLE, Argument, flag
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.project import definitions
from airflow_dynamic_tables.cli.running import FAILED, OK, USAGE, lines_of_spark, progress_of
from airflow_dynamic_tables.cli.state import owner_of, quiet_workspace_of, settings_of, workspace_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import WHOLE_TABLE, PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.results import items
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError, DynamicTableError
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.runners.base import Runner
from airflow_dynamic_tables.runners.local.runner import LocalServerRunner, is_there
from airflow_dynamic_tables.runners.registry import CONNECT_SCHEME, runner_for
from airflow_dynamic_tables.services.delays import delay_of
from airflow_dynamic_tables.services.lifecycle.suspending import note_failure
from airflow_dynamic_tables.services.names import named_table
from airflow_dynamic_tables.services.refresh.cascading import CascadeOutcome, CascadeStep, cascade
from airflow_dynamic_tables.services.refresh.origins import origins
from airflow_dynamic_tables.services.refresh.planning import job_environment
from airflow_dynamic_tables.services.refresh.query_changes import SampleRequest, sample_change
from airflow_dynamic_tables.services.refresh.requests import (
    RefreshRequest,
    Skipped,
    asked_time,
    latest_schedule_time,
    parse_partitions,
)
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.refresh.upstream import parents_of
from airflow_dynamic_tables.services.refresh.verifying import (
    NOT_VERIFIABLE,
    PartitionVerdict,
    RandomSample,
    VerifiedPartition,
    VerifyRequest,
    check_verified,
    summary,
    verify,
    verify_turn,
)
from airflow_dynamic_tables.services.status import RefreshWithRows, sample
from airflow_dynamic_tables.services.workspace import Workspace
from airflow_dynamic_tables.services.writes.settling import result_of

_T = TypeVar("_T")
_Work = Callable[[Callable[[RefreshPlan], None], Callable[[], None]], _T]

_OF_A_REQUEST = (
    flag("--scheduled", "as its schedule would: skipped if no input changed, and five failures in a row suspend the table"),
    Argument(
        ("--token",),
        "unique name of this refresh in the history (default: a random one)",
        {"metavar": "TOKEN", "type": argument_types.token},
    ),
)
"""Options with which a program runs a refresh that was requested elsewhere."""

_ORIGIN = ("depth", "table", "partitions", "version", "schedule_time", "state", "why")
_CASCADE = ("table", "outcome", "version", "partitions", "detail")
_SEEDS = 1_000_000
_SAMPLE = 3
_SAMPLES = ("removed_rows", "added_rows")
_ROWS = 10
"""Maximum number of rows that ``--show`` prints."""


@command(
    "refresh",
    "run one refresh now, without Airflow",
    (
        TABLE,
        SCHEDULE_TIME,
        PARTITION,
        flag("--full-refresh", "replace the complete table, whatever its partitions"),
        flag("--dirty", "refresh the partitions whose sources changed after they were made, and no others"),
        flag("--downstream", "then also refresh every table that reads it, directly or not, each once"),
        FORCE,
        flag("--show", "also print the first rows of the table, ten at most"),
        *_OF_A_REQUEST,
        MASTER,
        *STATE,
        OUTPUT,
    ),
    is_daily=True,
)
def refresh(arguments: Namespace) -> int:
    """Run one refresh with Spark and commit it.

    Readers see the new version only after everything succeeded. After Ctrl-C or a failure they still see the last one.
    With --downstream the tables that read it follow, parents first: for the partitions that follow from those that were
    replaced, or, where their query does not say which, as refresh does it by itself. The tables below one that fails are
    left, and the command exits with 1.
    """
    for options, are_given in (
        ("--partition and --full-refresh", arguments.partitions and arguments.full_refresh),
        ("--dirty and --partition, --full-refresh or --scheduled", arguments.dirty and _is_chosen(arguments)),
        ("--downstream and --scheduled", arguments.downstream and arguments.scheduled),
    ):
        if are_given:
            print(f"{options} exclude each other; give one of them.", file=sys.stderr)
            return USAGE
    defined, sound = definitions(arguments)
    with workspace_of(arguments) as workspace:
        request = _request(arguments, workspace, defined)
        if arguments.downstream:
            return _refresh_downstream(arguments, workspace, defined, request, is_complete=sound)
        with _failure_counted(workspace, request):
            outcome = run_here(workspace, request, arguments)
        if isinstance(outcome, Skipped):
            print(f"Skipped: {outcome.reason}", file=sys.stderr)
        done = result_of(workspace, request.token, outcome)
        rows = _first_rows(workspace, request.table.identifier) if arguments.show else None
    _print(done, arguments.output, rows)
    return OK


@command(
    "verify",
    "compare partitions of a table with what its query returns",
    (
        Argument(
            ("table",),
            "a table (default: all that have 'verify_every', and of each the partitions whose turn is today)",
            {"metavar": "TABLE", "nargs": "?"},
        ),
        Argument(
            ("--partitions",),
            "how many partitions, chosen at random, or all (default: 3)",
            {"metavar": "N", "type": argument_types.number_or_all, "default": _SAMPLE},
        ),
        Argument(
            ("--seed",),
            "a number that chooses the same partitions again (default: a random one)",
            {"metavar": "N", "type": argument_types.positive},
        ),
        MASTER,
        *STATE,
        OUTPUT,
    ),
)
def verify_table(arguments: Namespace) -> int:
    """Compute partitions again, for the versions of the sources that they were made of, and compare them with the table.

    Nothing is published. The result is also in the history. Exits with 1 unless all of these partitions are equal: a
    partition cannot be verified if a version of a source is gone. Without TABLE, it exits with 1 only for partitions that
    differ, and for errors.
    """
    if arguments.table is None:
        return _verify_turns(arguments)
    defined, _ = definitions(arguments)
    table = named_table(defined, arguments.table)
    seed = arguments.seed if arguments.seed is not None else randrange(1, _SEEDS)
    request = VerifyRequest(table, defined.sources, RandomSample(arguments.partitions, seed))
    with workspace_of(arguments) as workspace:
        found = with_spark(workspace, table.identifier, table.spark, arguments, partial(verify, workspace, request))
    print(f"{summary(found, request.sample)}.".capitalize(), file=sys.stderr)
    output.listing(found, arguments.output)
    return OK if all(one.verdict is PartitionVerdict.EQUAL for one in found) else FAILED


def _verify_turns(arguments: Namespace) -> int:
    """Verify the partitions of all tables whose turn is today; a table that cannot be verified is named."""
    if arguments.seed is not None or arguments.partitions != _SAMPLE:
        print("--partitions and --seed are for one table; name it.", file=sys.stderr)
        return USAGE
    defined, is_complete = definitions(arguments)
    found: list[VerifiedPartition] = []
    has_failed = not is_complete
    with workspace_of(arguments) as workspace:
        for table in defined.topological():
            if table.verify_every is None:
                continue
            today = workspace.now().astimezone(ZoneInfo(table.timezone)).date()
            work = partial(verify_turn, workspace, table, defined.sources, today)
            try:
                verified = with_spark(workspace, table.identifier, table.spark, arguments, work)
                found += verified
                check_verified(table, verified)
            except NOT_VERIFIABLE as error:
                print(f"Skipped: {error}", file=sys.stderr)
            except DynamicTableError as error:
                print(error, file=sys.stderr)
                has_failed = True
    output.listing(found, arguments.output)
    return FAILED if has_failed else OK


def sampled_change(arguments: Namespace) -> int:
    """Show what a change of the definition does to the rows of some partitions."""
    if len(arguments.tables) != 1 or arguments.compare or arguments.live:
        print("--sample is for one table, without --compare and --live; name it.", file=sys.stderr)
        return USAGE
    defined, _ = definitions(arguments)
    table = named_table(defined, arguments.tables[0])
    asked = WHOLE_TABLE if arguments.sample == "all" else _partitions([arguments.sample], table, "--sample") or WHOLE_TABLE
    with workspace_of(arguments) as workspace:
        time = _schedule_time(table, arguments.schedule_time, workspace.now())
        request = SampleRequest(table, defined.sources, asked, time, arguments.rows)
        found = with_spark(workspace, table.identifier, table.spark, arguments, partial(sample_change, workspace, request))
    if arguments.output != "table":
        output.record(found, arguments.output)
    else:
        output.lines({name: value for name, value in items(found).items() if name not in _SAMPLES and value is not None})
        for title, rows in (("only before", found.removed_rows), ("only after", found.added_rows)):
            if rows:
                print(f"\n{title}:")
                output.rows(rows)
    return FAILED if arguments.exit_code and not found.is_none else OK


@command(
    "why",
    "show which refreshes made the rows of a table, and from which versions of its sources; or why it is late",
    (
        TABLE,
        flag("--late", "show instead where its delay began: the first table upstream that stopped, since when, and who must act"),
        Argument(
            ("partitions",),
            "only this partition, e.g. ds=2024-01-01, or a range (default: all)",
            {"metavar": "SPEC", "type": argument_types.partitions, "nargs": "?"},
        ),
        *STATE,
        OUTPUT,
    ),
)
def why(arguments: Namespace) -> int:
    """List the refreshes that made the rows of a table, those of the tables that they read, and so on, down to the sources.

    The state of the table is CHANGED if a refresh would make other rows now; that of a source, if it has changed since it
    was read. Nothing is written, and Spark is not needed.
    """
    if arguments.late and arguments.partitions:
        print("--late is about the table, not about partitions: leave the partitions out.", file=sys.stderr)
        return USAGE
    defined, _ = definitions(arguments)
    table = named_table(defined, arguments.table)
    if arguments.late:
        return _delay(arguments, defined, table)
    asked = _partitions([arguments.partitions] if arguments.partitions else None, table)
    with quiet_workspace_of(arguments) as workspace:
        found = origins(workspace, defined, table, asked)
    output.listing(found, arguments.output, _ORIGIN)
    return OK


def _delay(arguments: Namespace, defined: Definitions, table: DynamicTable) -> int:
    with quiet_workspace_of(arguments) as workspace:
        found = delay_of(workspace, defined, table.identifier)
    if arguments.output != "table":
        output.record(found, arguments.output)
    elif found.stopped is None:
        print(f"{table.identifier} is not late, and no refresh of it has stopped.", file=sys.stderr)
    else:
        output.lines({name: value for name, value in items(found).items() if value})
    return OK


def _is_chosen(arguments: Namespace) -> bool:
    return bool(arguments.partitions or arguments.full_refresh or arguments.scheduled)


def _first_rows(workspace: Workspace, table: TableIdentifier) -> list[dict[str, Any]]:
    has_version = workspace.existing_table(table).current() is not None
    return sample(workspace, table, _ROWS) if has_version else []


def _print(done: Version | Skipped | Refresh, form: str, rows: list[dict[str, Any]] | None) -> None:
    if form != "table":
        if rows is not None and isinstance(done, Refresh):
            done = RefreshWithRows(**items(done), first_rows=tuple(rows))
        output.record(done, form)
        return
    if not (isinstance(done, Refresh) and done.state is RefreshState.SKIPPED):
        output.written(done, form)
    if rows:
        print()
        output.rows(rows)


@contextmanager
def _failure_counted(workspace: Workspace, request: RefreshRequest) -> Iterator[None]:
    """Count the failure of a refresh that the schedule requested; repeated failures suspend the table."""
    try:
        yield
    except DynamicTableError as error:
        if request.is_scheduled:
            note_failure(workspace, request.table, request.schedule_time.isoformat(), str(error))
        raise


def _schedule_time(table: DynamicTable, asked: datetime | None, now: datetime) -> datetime:
    return asked_time(asked, table, now) if asked is not None else latest_schedule_time(table, now)


def _refresh_downstream(
    arguments: Namespace, workspace: Workspace, defined: Definitions, request: RefreshRequest, *, is_complete: bool
) -> int:
    def refresh_one(wanted: RefreshRequest, planned: Callable[[RefreshPlan], None]) -> Version | Skipped:
        def work(spark: Callable[[RefreshPlan], None], on_lost: Callable[[], None]) -> Version | Skipped:
            def submit(plan: RefreshPlan) -> None:
                planned(plan)
                spark(plan)

            return run(workspace, wanted, submit, on_lost)

        table = wanted.table
        print(f"{table.identifier}:", file=sys.stderr)
        return with_spark(workspace, table.identifier, table.spark, arguments, work)

    steps: list[CascadeStep] = []
    for step in cascade(workspace, defined, request, refresh_one):
        if step.outcome is not CascadeOutcome.REFRESHED:
            print(f"{step.table}: {step.outcome}: {step.detail}", file=sys.stderr)
        steps.append(step)
    output.listing(steps, arguments.output, _CASCADE)
    return FAILED if not is_complete or any(step.ends_branch for step in steps) else OK


def _request(arguments: Namespace, workspace: Workspace, defined: Definitions) -> RefreshRequest:
    table = named_table(defined, arguments.table)
    token = arguments.token or str(uuid4())
    return RefreshRequest(
        table=table,
        sources=defined.sources,
        schedule_time=_schedule_time(table, arguments.schedule_time, workspace.now()),
        token=token,
        owner=owner_of("refresh", token),
        partitions=_partitions(arguments.partitions, table),
        full_refresh=arguments.full_refresh,
        only_dirty=arguments.dirty,
        force=arguments.force,
        replaces_frozen=arguments.force,
        catches_up=arguments.schedule_time is None and not arguments.dirty,
        is_scheduled=arguments.scheduled,
        waits=False,
        parents=parents_of(table, defined),
    )


def _partitions(asked: Sequence[str] | None, table: DynamicTable, option: str = "--partition") -> PartitionSet | None:
    try:
        return parse_partitions(",".join(asked), table.formatters) if asked else None
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}.") from error


def spark_runner(settings: SparkSettings, arguments: Namespace) -> Runner:
    """Return the runner: the requested one, else the Spark server of this machine if there is one, else spark-submit."""
    on_line = lines_of_spark(arguments)
    if address := _spark_address(arguments.master):
        return runner_for(settings, address, on_line)
    installation = settings_of(arguments).database_url
    if is_there(installation):
        try:
            runner = LocalServerRunner(settings, installation, on_line)
        except ConfigurationError as error:
            print(f"Using spark-submit, not the warm Spark server on this machine: {error}", file=sys.stderr)
        else:
            print("Using the warm Spark server on this machine. To start a separate Spark: --master 'local[*]'", file=sys.stderr)
            return runner
    return runner_for(settings, "local[*]", on_line)


def _spark_address(master: str | None) -> str | None:
    """Return the address of Spark: ``--master``, or else the server in ``SPARK_REMOTE``; ``None`` if neither is set."""
    if master is None:
        remote = os.environ.get("SPARK_REMOTE", "")
        return remote if remote.startswith(CONNECT_SCHEME) else None
    if master.startswith(CONNECT_SCHEME) and ";" in master:
        raise ConfigurationError(
            "--master takes no token, because others see command lines; set SPARK_REMOTE to the whole address, or "
            "SPARK_CONNECT_AUTHENTICATE_TOKEN to the token."
        )
    return master


def run_here(workspace: Workspace, request: RefreshRequest, arguments: Namespace) -> Version | Skipped:
    """Run a refresh with the Spark that the arguments name, showing its steps on a terminal; Ctrl-C and SIGTERM stop it."""
    return with_spark(workspace, request.table.identifier, request.table.spark, arguments, partial(run, workspace, request))


def with_spark(
    workspace: Workspace,
    table: TableIdentifier,
    settings: SparkSettings,
    arguments: Namespace,
    work: _Work[_T],
) -> _T:
    """Run work that needs a job with the Spark that the arguments name, showing steps on a terminal; Ctrl-C and SIGTERM stop it.

    :param work: called with the function that runs the job of a plan, and the function to call when the stage is lost.
    """
    lost = Event()
    progress = progress_of(arguments)
    with progress.step(f"Planning {table}"), stopped_like_ctrl_c():
        runner = spark_runner(settings, arguments)

        def spark(plan: RefreshPlan) -> None:
            with progress.step("Starting Spark"):
                runner.run(plan, job_environment(workspace, plan))
            progress.say(f"Committing {table}")

        def stop() -> None:
            lost.set()
            interrupt_main()

        try:
            return work(spark, stop)
        except KeyboardInterrupt:
            if lost.is_set():
                raise ConflictError(f"Another process took over the refresh of {table}.") from None
            raise


@contextmanager
def stopped_like_ctrl_c() -> Iterator[None]:
    """Make SIGTERM end the body like Ctrl-C, so that the stage is aborted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
