"""Create DAGs from definitions, without access to connections, variables or catalogs."""

from __future__ import annotations

import hashlib
import itertools
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from airflow import __version__ as airflow_version
from airflow.exceptions import SerializationError
from airflow.providers.common.compat.sdk import DAG
from airflow.sdk import CronTriggerTimetable, TriggerRule, get_parsing_context

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.limits import TAG_CHARACTERS
from airflow_dynamic_tables.core.mistakes import Mistake, Mistakes, understood
from airflow_dynamic_tables.dags.callbacks import callbacks_of, dag_callbacks_of, deadlines_of, late_callbacks_of
from airflow_dynamic_tables.dags.declared import (
    DagAccess,
    configured_poll_interval,
    default_args_of,
    is_airflows,
    load_every,
    load_workflow,
    said,
    task_settings,
)
from airflow_dynamic_tables.dags.doc_md import Readers, describe_table, readers_of
from airflow_dynamic_tables.dags.params import group_params_of, params_of
from airflow_dynamic_tables.dags.schedules import CONTINUOUS_TAG, schedule_of, shared_schedule_of
from airflow_dynamic_tables.definitions.model import AirflowPart, Definitions, DynamicTable, settings_of
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError
from airflow_dynamic_tables.hooks.dynamic_table_catalog import configured_connection
from airflow_dynamic_tables.hooks.metrics import are_sent as metrics_are_sent
from airflow_dynamic_tables.operators.continuous_refresh import ContinuousRefreshOperator
from airflow_dynamic_tables.operators.decide import DecideOperator
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator
from airflow_dynamic_tables.operators.freshness import FreshnessOperator
from airflow_dynamic_tables.operators.maintenance import SweepOperator
from airflow_dynamic_tables.operators.run_arguments import OF_CONTINUOUS, OF_TABLE, of_group
from airflow_dynamic_tables.operators.verification import VerifyOperator
from airflow_dynamic_tables.schedulers.base import DAG_TAG
from airflow_dynamic_tables.services.refresh.preview import not_schedulable, warnings
from airflow_dynamic_tables.services.settings import find_catalogs_file
from airflow_dynamic_tables.task_group import put_in_order, refresh_task

MAINTENANCE_DAG = "dynamic_tables__maintenance"
VERIFICATION_DAG = "dynamic_tables__verification"
FRESHNESS_DAG = "dynamic_tables__freshness"

START_DATE = datetime(1970, 1, 1, tzinfo=UTC)
"""Fixed, so that serialized DAGs do not change, and early, so that backfills can reach all data."""

MAX_DECISIONS = 16
"""Most refreshes of a table that may wait for a decision before the table is no longer refreshed."""

log = logging.getLogger(__name__)


def load_dynamic_tables(
    namespace: MutableMapping[str, Any],
    definitions: str | Path,
    *,
    catalogs_file: str | Path | None = None,
    conn_id: str | None = None,
    maintenance: bool = True,
    default_args: Mapping[str, Any] | None = None,
) -> None:
    """Add DAGs for all dynamic tables and groups, and those of the maintenance, to the globals of a DAG file.

    A broken definitions file is an import error of that file only. When Airflow runs a task, only the DAG of that task is built.

    :param namespace: ``globals()`` of the DAG file.
    :param definitions: a definitions file or folder.
    :param catalogs_file: default: ``catalogs.yaml`` in the folder of the definitions or beside it.
    :param conn_id: connection of type ``dynamic_tables``; default: option ``connection`` of section ``dynamic_tables``.
    :param maintenance: whether to build the DAGs of maintenance, verification and freshness, too; one for each state database.
    :param default_args: Airflow's, for the tasks of all these DAGs; the definitions override them.
    """
    path = Path(definitions)
    access = DagAccess(
        conn_id=conn_id or configured_connection(),
        definitions=path,
        catalogs_file=Path(catalogs_file) if catalogs_file else find_catalogs_file(path),
        poll_interval=configured_poll_interval(),
        default_args=dict(default_args or {}),
    )
    wanted = get_parsing_context().dag_id
    if wanted is None:
        dags = _all_dags(path, access, maintenance=maintenance)
    elif wanted == VERIFICATION_DAG and maintenance:
        dags = _verification_dags(load_every(path, access.catalogs_file)[0], access, Mistakes())
    else:
        dags = _one_dag(path, access, wanted)
    namespace.update({dag.dag_id: dag for dag in dags})
    if maintenance and wanted in (None, MAINTENANCE_DAG):
        namespace[MAINTENANCE_DAG] = build_maintenance_dag(access)
    if maintenance and wanted == FRESHNESS_DAG:
        namespace[FRESHNESS_DAG] = build_freshness_dag(access, path)


def _all_dags(path: Path, access: DagAccess, *, maintenance: bool) -> list[DAG]:
    definitions, mistakes = load_every(path, access.catalogs_file)
    readers = readers_of(definitions)
    dags: list[DAG] = []
    refused = Mistakes()
    groups: dict[str, list[DynamicTable]] = {}
    for table in definitions.topological():
        at = partial(Mistake, table.path, table.line, 1)
        for told in warnings(table):
            log.warning("%s:%s: %s: %s", table.path, table.line, table.identifier, told)
        # A table that cannot be refreshed is an import error of its file.
        if why := not_schedulable(table):
            refused.add([at(f"{table.identifier}: {why}")])
        elif not is_airflows(table):
            continue
        elif table.dag:
            groups.setdefault(table.dag, []).append(table)
        else:
            with _told(refused, table):
                dags.append(build_dag(table, definitions, access, readers))
    for tables in groups.values():
        with _told(refused, tables[0]):
            dags.append(build_group_dag(tables, definitions, access, readers, refused))
    if maintenance:
        dags += [*_verification_dags(definitions, access, refused), *_freshness_dags(definitions, access, path, refused)]
    else:
        refused.add(_without_maintenance(definitions))
    every = (*mistakes, *refused.in_order())
    for mistake in every:
        log.error("%s", mistake)
    return [*dags, *_broken_files(every)]


@contextmanager
def _told(refused: Mistakes, table: DynamicTable) -> Iterator[None]:
    """Record configuration errors as mistakes of the table, so that other tables are not affected."""
    at = partial(Mistake, table.path, table.line, 1)
    with understood(refused, at):
        try:
            yield
        except ConfigurationError as error:
            refused.add([at(f"{table.identifier}: {error}")])


def _one_dag(path: Path, access: DagAccess, dag_id: str) -> list[DAG]:
    definitions = load_workflow(path, dag_id, access.catalogs_file)
    tables = [table for table in definitions.topological() if table.workflow_id == dag_id and is_airflows(table)]
    tables = [table for table in tables if not not_schedulable(table)]
    if not tables:
        return []
    return [build_group_dag(tables, definitions, access) if tables[0].dag else build_dag(tables[0], definitions, access)]


def build_dag(
    table: DynamicTable, definitions: Definitions, access: DagAccess | None = None, readers: Readers | None = None
) -> DAG:
    """Build the DAG of one table: a task ``refresh``, scheduled by the cron expression of its freshness and by asset updates.

    In continuous mode, each run follows the previous one. If a refresh may be quarantined, it is followed by a task ``decide``.

    :param definitions: the definitions with its parents and sources.
    :param readers: the dynamic tables that read each table; default: determined from the definitions.
    """
    access = access or DagAccess()
    dag = _dag(
        [table],
        access,
        dag_display_name=str(table.identifier),
        description=table.comment or f"Keeps {table.identifier} fresh",
        schedule=schedule_of(table),
        # Further refreshes may run while a run waits for a decision.
        max_active_runs=MAX_DECISIONS if table.may_be_quarantined and not table.is_continuous else 1,
        max_active_tasks=1,
        doc_md=describe_table(table, definitions, readers_of(definitions) if readers is None else readers),
    )
    _add_tasks(dag, table, definitions, access)
    # Set last, because Airflow would check and copy them for every DAG, two thirds of the time for a thousand tables.
    dag.params.update(params_of(table))
    return dag


def build_group_dag(
    tables: Sequence[DynamicTable],
    definitions: Definitions,
    access: DagAccess | None = None,
    readers: Readers | None = None,
    refused: Mistakes | None = None,
) -> DAG:
    """Build the DAG shared by tables: one task per table, after those that it reads; it runs at the ticks of all tables.

    :param tables: in topological order, with the same DAG settings.
    :param definitions: the definitions with their parents and sources.
    :param readers: see :func:`build_dag`.
    :param refused: collects mistakes of tables, which are then omitted.
    """
    access = access or DagAccess()
    readers = readers_of(definitions) if readers is None else readers
    dag = _dag(
        tables,
        access,
        dag_display_name=str(tables[0].dag),
        description=f"Keeps {len(tables)} tables fresh",
        schedule=shared_schedule_of(tables),
        max_active_runs=1,
        doc_md="\n\n".join(describe_table(table, definitions, readers) for table in tables),
    )
    wanted = get_parsing_context().task_id
    tasks: list[DynamicTableRefreshOperator] = []
    # A running task needs no other tasks: creating those of hundreds of tables takes seconds.
    for table in tables if wanted is None else [table for table in tables if table.identifier.task_id == wanted]:
        with _told(Mistakes() if refused is None else refused, table):
            tasks.append(refresh_task(table, definitions, runs=of_group(tables), **_common(dag, access)))
    put_in_order(tasks)
    dag.params.update(group_params_of(tables))
    return dag


def _dag(tables: Sequence[DynamicTable], access: DagAccess, **own: Any) -> DAG:
    """Create the DAG without tasks, for tables with the same DAG settings."""
    finest = min(tables, key=lambda table: table.freshness.period)
    dates = {key: getattr(finest, key) or access.default_args.get(key) for key in ("start_date", "end_date")}
    settings = {**own, **said(finest, settings_of(AirflowPart.DAG)), **dag_callbacks_of(finest)}
    given = {name: value for name, value in access.default_args.items() if name not in dates}
    if finest.access_control:
        # Airflow applies permissions to the DAG only if they are lists.
        settings["access_control"] = {role: list(permissions) for role, permissions in finest.access_control.items()}
    tags = [CONTINUOUS_TAG] if finest.is_continuous else []
    tags += [tag for table in tables for tag in (*_place_tags(table.identifier), *table.tags)]
    tags += [f"freshness: {table.freshness.text}" for table in tables]  # the only place for it in Airflow's list of DAGs
    return DAG(
        dag_id=finest.workflow_id,
        start_date=dates["start_date"] or START_DATE,
        end_date=dates["end_date"],
        # Dates of tasks would apply in addition to those of the DAG.
        default_args={**default_args_of(finest), **given},
        catchup=False,
        tags=[DAG_TAG, *dict.fromkeys(tags)],
        auto_register=False,
        deadline=deadlines_of(finest),
        **settings,
    )


def _common(dag: DAG, access: DagAccess) -> dict[str, Any]:
    return {
        "dag": dag,
        "catalog_conn_id": access.conn_id,
        "catalogs_file": access.catalogs_file,
        "poll_interval": access.poll_interval,
    }


def _add_tasks(dag: DAG, table: DynamicTable, definitions: Definitions, access: DagAccess) -> None:
    common = _common(dag, access)
    # The task has the page of its DAG; Markdown takes a tenth of the time for a thousand tables.
    arguments: dict[str, Any] = {"task_id": "refresh", "table": table, "doc_md": dag.doc_md, **common}
    arguments["definitions"] = definitions.part_for([table])
    refresh = (
        ContinuousRefreshOperator(definitions_path=access.definitions, runs=OF_CONTINUOUS, **arguments)
        if table.is_continuous
        else DynamicTableRefreshOperator(runs=OF_TABLE, **arguments)
    )
    if table.may_be_quarantined:
        # The refresh has already reported the failure.
        told: dict[str, Any] = {name: value for name, value in callbacks_of(table).items() if name == "on_success_callback"}
        decide = DecideOperator(
            task_id="decide",
            table=table.identifier,
            trigger_rule=TriggerRule.ALL_FAILED,
            outlets=[dynamic_table_asset(table.identifier)],
            most_partition_events=table.most_partition_events,
            **common,
            **task_settings(table),
            **{**told, "on_failure_callback": None},
        )
        refresh >> decide


def _place_tags(identifier: TableIdentifier) -> list[str]:
    places = (identifier.catalog, f"{identifier.catalog}.{identifier.database}")
    return [place for place in places if len(place) <= TAG_CHARACTERS]


def build_maintenance_dag(access: DagAccess) -> DAG:
    """Build the hourly DAG that cleans up after failed refreshes, and whose runs report tables that are no longer declared."""
    description = "Cleans up after refreshes that died; a note at its runs names the tables that are no longer declared"
    dag = _maintaining_dag(MAINTENANCE_DAG, description, "30 * * * *", access)
    SweepOperator(
        task_id="sweep",
        dag=dag,
        catalog_conn_id=access.conn_id,
        catalogs_file=access.catalogs_file,
        definitions_path=access.definitions,
        max_active_tis_per_dag=1,  # also for backfills: two concurrent runs would report the same version twice
    )
    return dag


def build_freshness_dag(access: DagAccess, definitions: Path) -> DAG:
    """Build the DAG that checks the freshness of all tables every minute."""
    description = "Checks every minute how far tables lie behind, whether their DAGs run or not"
    dag = _maintaining_dag(FRESHNESS_DAG, description, "* * * * *", access)
    FreshnessOperator(
        task_id="check",
        dag=dag,
        definitions_path=definitions,
        catalog_conn_id=access.conn_id,
        catalogs_file=access.catalogs_file,
        execution_timeout=timedelta(minutes=5),
    )
    return dag


def _maintaining_dag(dag_id: str, description: str, cron: str, access: DagAccess, **arguments: Any) -> DAG:
    return DAG(
        dag_id=dag_id,
        description=description,
        schedule=CronTriggerTimetable(cron, timezone="UTC"),
        start_date=START_DATE,
        catchup=False,
        max_active_runs=1,
        tags=[DAG_TAG],
        auto_register=False,
        default_args=dict(access.default_args),
        **arguments,
    )


def _verification_dags(definitions: Definitions, access: DagAccess, refused: Mistakes) -> list[DAG]:
    """Return the daily DAG with a task for each table that has ``verify_every``; empty if none has."""
    tables = _to_verify(definitions)
    if not tables:
        return []
    description = "Computes some partitions again every day and compares them with their tables; publishes nothing"
    dag = _maintaining_dag(VERIFICATION_DAG, description, "45 3 * * *", access, max_active_tasks=1)
    wanted = get_parsing_context().task_id
    common = {name: value for name, value in _common(dag, access).items() if name != "poll_interval"}
    for table in tables if wanted is None else [table for table in tables if table.identifier.task_id == wanted]:
        with _told(refused, table):
            part = definitions.part_for([table])
            VerifyOperator(task_id=table.identifier.task_id, table=table, definitions=part, **common)
    return [dag]


def _freshness_dags(definitions: Definitions, access: DagAccess, path: Path, refused: Mistakes) -> list[DAG]:
    """Return the DAG that checks the freshness of tables; empty if nothing would come of it."""
    tables = _to_notify(definitions)
    for table in tables:
        with _told(refused, table):
            late_callbacks_of(table)
    return [build_freshness_dag(access, path)] if tables or metrics_are_sent() else []


def _without_maintenance(definitions: Definitions) -> list[Mistake]:
    """Return the tables that a DAG file without maintenance does not verify, or about whose lateness it does not notify."""
    keys = {"verify_every": _to_verify(definitions), "on_late_callback": _to_notify(definitions)}
    message = "has no effect, because the DAG file says maintenance=False; take one of them away"
    return [
        Mistake(table.path, table.line, 1, f"{table.identifier}: {key!r} {message}")
        for key, tables in keys.items()
        for table in tables
    ]


def _to_notify(definitions: Definitions) -> list[DynamicTable]:
    return [table for table in definitions.topological() if table.on_late_callback and is_airflows(table)]


def _to_verify(definitions: Definitions) -> list[DynamicTable]:
    tables = definitions.topological()
    return [table for table in tables if table.verify_every and is_airflows(table) and not not_schedulable(table)]


def _broken_files(mistakes: Iterable[Mistake]) -> list[DAG]:
    """Return a DAG for each broken definitions file that results in an import error of that file.

    Airflow 3 supports import errors of Python files only, and one of the DAG file would hide all of its DAGs. But the DAG
    processor assigns a serialization error to the DAG's ``relative_fileloc``. Therefore each broken file gets a DAG with its own
    path. Outside of a DAG processor, the error would not be caught. Works in Airflow 3.2 and 3.3; 3.4 will have importers for
    YAML.
    """
    if not _in_dag_processor() or not airflow_version.startswith(("3.2.", "3.3.")):
        return []
    by_file = itertools.groupby(sorted(mistakes), key=lambda mistake: mistake.path)
    return [_BrokenFile(path, tuple(of_file)) for path, of_file in by_file]


def _in_dag_processor() -> bool:
    """Return whether Airflow parses DAGs for serialization: the process has a supervisor, but runs no task."""
    return hasattr(sys.modules.get("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS")


class _BrokenFile(DAG):
    """A DAG that represents a file, and fails to serialize."""

    def __init__(self, path: Path, mistakes: tuple[Mistake, ...]) -> None:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        super().__init__(dag_id=f"dynamic_tables__broken_file_{digest}", schedule=None, auto_register=False)
        self._path = path
        self._mistakes = mistakes

    def validate(self) -> None:
        """Replace the loader's path by that of the broken file; called after Airflow has set it."""
        super().validate()  # type: ignore[no-untyped-call]
        loader = Path(self.fileloc)
        if self.relative_fileloc and self._path.is_relative_to(loader.parent):
            self.relative_fileloc = str(Path(self.relative_fileloc).parent / self._path.relative_to(loader.parent))
        else:
            self.relative_fileloc = str(self._path)

    def get_serialized_fields(self) -> Any:  # type: ignore[override]  # a class method in Airflow; here it depends on the file
        # Airflow's traceback begins with the cause, so the mistakes come first.
        raise SerializationError("The definitions have mistakes, see above.") from DefinitionError(self._mistakes)
