"""Faults in a running Airflow: each is injected for real into a scheduled refresh whose job is half-way through its stage.

Every case has a table of its own, and all go on at the same time beside a reader that looks at all tables all the time. Most jobs
are run by a stand-in for the cluster (see there), those where Spark itself matters by Spark; ``-m long``
runs all of them by Spark.
"""

from __future__ import annotations

import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.ledger.base import Refresh, RefreshState
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import run
from airflow_dynamic_tables.services.status import sample
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support import cluster_stand_in
from tests.support.airflow import Stack, jobs_of, until
from tests.support.busy_folders import paths_below
from tests.support.faults.report import FaultReport
from tests.support.live import TABLE as LOOP
from tests.support.live import Live

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(2400)]

OLD, LOST, NEW = [1, 2, 3], [4, 5, 6], [7, 8, 9]
"""Rows of the version before the fault, of the refresh that the fault hits, and of the source from then on."""

SPARK_NAP, LONG_NAP = 45_000, 3_600_000
"""How long, in milliseconds, Spark sleeps in the middle of its job: a job that outlives its task wakes up and writes."""

LIMIT = 900
"""Seconds for what takes five when the machine has nothing else to do."""

DEFINITIONS = """
defaults:
  {catalog: lake, database: faults, retries: 0, freshness: 1 day, spark: {conf: {spark.log.level: INFO}}}
"""
"""Spark logs what it does: that it reads the source shows only there."""
SOURCE = """
  - name: {name}_source
    format: json
    path: {path}
    schema: "x bigint, ds string, nap bigint"
"""
TABLE = """
  - name: {name}
    schedule: 0 0 1 1 *
    spark: {spark}
    {settings}
    query: SELECT x FROM {name}_source WHERE reflect('java.lang.Thread', 'sleep', nap) IS NOT NULL
"""
ENGINES = {"stand_in": "{conn_id: spark_stand_in}", "spark": "SPARK"}

TIMEOUT = """
if {dag!r} in globals() and Path({hasty!r}).exists():
    import datetime

    {dag}.{attribute} = datetime.timedelta(seconds={seconds})
"""
TIMEOUTS = {"execution_timeout": ("task_dict['refresh'].execution_timeout", 120), "run_timeout": ("dagrun_timeout", 1)}
"""What a user has set too short, and how many seconds: a task needs some to begin on a busy machine, a run does not."""


ABORTED, FAILED = frozenset({RefreshState.ABORTED}), frozenset({RefreshState.FAILED})
STOPPED = ABORTED | FAILED
"""A task that is stopped says so, unless the machine stalls: then it may tell first that its job failed."""


@dataclass(frozen=True)
class Fault:
    """What happens to a refresh.

    ``ends`` is the state of its task, ``history`` that of the refresh in the ledger; ``heals`` says whether Airflow heals it by
    itself, ``zombie`` whether its job outlives it.
    """

    name: str
    what: str
    inject: Callable[[Victim], None]
    ends: str
    history: frozenset[RefreshState] = STOPPED
    heals: bool = False
    zombie: bool = False
    settings: str = ""


RETRIED = "retries: 1\n    retry_delay: 1 second"
FAULTS = (
    Fault(
        "execution_timeout",
        "execution timeout",
        lambda victim: victim.let_time_run_out(),
        "failed",
        ABORTED,
        settings="execution_timeout: 1 hour",
    ),
    Fault("run_timeout", "DAG run timeout", lambda victim: victim.grow_hasty(), "skipped"),
    Fault("kill_supervisor", "kill -9 supervisor", lambda victim: victim.supervisor.kill(), "failed"),
    Fault("kill_task", "kill -9 task", lambda victim: victim.task.kill(), "failed", ABORTED, zombie=True),
    Fault("kill_jvm", "kill -9 spark-submit", lambda victim: victim.job.kill(), "failed", FAILED),
    Fault("clear", "cleared while running", lambda victim: victim.stack.clear(victim.dag, victim.run_id), "success", heals=True),
    Fault("mark_failed", "marked failed", lambda victim: victim.mark("failed"), "failed"),
    Fault("mark_success", "marked success while running", lambda victim: victim.mark("success"), "success"),
    Fault("kill_both", "kill -9 task and supervisor", lambda victim: victim.kill_both(), "failed", ABORTED, zombie=True),
    Fault(
        "kill_task_retried",
        "kill -9 task, one retry",
        lambda victim: victim.task.kill(),
        "success",
        ABORTED,
        heals=True,
        zombie=True,
        settings=RETRIED,
    ),
    Fault(
        "kill_supervisor_retried",
        "kill -9 supervisor, one retry",
        lambda victim: victim.supervisor.kill(),
        "success",
        heals=True,
        settings=RETRIED,
    ),
)
RESTARTED = ("scheduler", "dag-processor")
RESTART = Fault("restart", "kill -9 scheduler, a new one", lambda victim: victim.restart(), "success", heals=True)
MAINTENANCE = "dynamic_tables__maintenance"
SHORT_THRESHOLD = 10
"""Seconds: the threshold of continuous tables from the restart on."""
BY_SPARK = ("kill_task", "kill_jvm", "clear")
"""What needs Spark itself also in the short form."""


@dataclass
class Victim:
    stack: Stack
    workspace: Workspace
    folder: Path
    run_id: str = ""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def identifier(self) -> TableIdentifier:
        return TableIdentifier("lake", "faults", self.name)

    @property
    def dag(self) -> str:
        return self.identifier.workflow_id

    def offer(self, rows: list[int], nap: int = 0) -> None:
        naps = [0, nap, 0]
        file, half = self.folder / "rows" / "rows.json", self.folder / "half.json"
        file.parent.mkdir(exist_ok=True, parents=True)
        half.write_text("".join(json.dumps({"x": x, "ds": "", "nap": nap}) + "\n" for x, nap in zip(rows, naps, strict=True)))
        half.replace(file)

    def refresh_without_airflow(self, definitions: Definitions) -> None:
        table, long_ago = definitions.tables[self.identifier], datetime(2020, 1, 1, tzinfo=UTC)
        request = RefreshRequest(table, definitions.sources, long_ago, token=str(uuid.uuid4()), owner="nobody")
        assert isinstance(run(self.workspace, request, cluster_stand_in.run), Version)

    def start(self) -> None:
        self.stack.unpause(self.dag)
        self.run_id = self.stack.first_run(self.dag)
        until(f"half of {self.name}", self._half_done, LIMIT)

    def _half_done(self) -> bool:
        """Files are in the stage; or Spark, which shuffles before it writes, reads the source."""
        stages = self.workspace.ledger.list_stages(self.identifier)
        if any(list(Path(urlsplit(stage.location).path).glob("data/*")) for stage in stages):
            return True
        return bool(stages) and "FileScanRDD: Reading File" in self.stack.log(self.dag, self.run_id)

    @cached_property
    def token(self) -> str:
        (stage,) = self.workspace.ledger.list_stages(self.identifier)
        return stage.token

    @cached_property
    def job(self) -> psutil.Process:
        """What spark-submit became: the JVM."""
        return jobs_of(self.token)[0]

    @cached_property
    def task(self) -> psutil.Process:
        parent = self.job.parent()
        assert parent is not None
        return parent

    @cached_property
    def supervisor(self) -> psutil.Process:
        parent = self.task.parent()
        assert parent is not None
        assert "LocalExecutor" in " ".join(parent.cmdline())
        return parent

    @property
    def hasty(self) -> Path:
        return self.folder / "hasty"

    def grow_hasty(self) -> None:
        self.hasty.touch()
        self.stack.airflow.parse()

    def grow_patient(self) -> None:
        self.hasty.unlink(missing_ok=True)
        self.stack.airflow.parse()
        until("end of the timeout", lambda: self.stack.get(f"/dags/{self.dag}/details")["dag_run_timeout"] is None, LIMIT)

    def let_time_run_out(self) -> None:
        """Do to the task what its timer does at the end of its execution timeout; in the long form the timer itself does."""
        if not self.hasty.exists():
            self.task.send_signal(signal.SIGALRM)

    def kill_both(self) -> None:
        task, supervisor = self.task, self.supervisor
        supervisor.kill()
        task.kill()

    def mark(self, state: str) -> None:
        self.stack.mark(self.dag, self.run_id, state)

    def restart(self) -> None:
        for component in RESTARTED:
            self.stack.components.kill(component)
        for component in RESTARTED:
            self.stack.components.start(component)

    def rows(self) -> list[int]:
        return sorted(row["x"] for row in sample(self.workspace, self.identifier, 100))

    def refreshes(self) -> list[Refresh]:
        return self.workspace.ledger.list_refreshes(self.identifier)[-2::-1]

    def left(self) -> list[Path]:
        lost = [found.token for found in self.refreshes() if found.version is None]
        return [path for token in lost for path in paths_below(self.stack.airflow.warehouse, token)]

    def check_versions(self) -> str:
        """Every version after the first was a success of Airflow's, and has its asset event; nothing else has."""
        versions = self.workspace.table(self.identifier, "iceberg").versions()
        made = [(version.number, version.token) for version in versions[1:]]
        assert made == [(done.version, done.token) for done in self.refreshes() if done.state is RefreshState.SUCCEEDED]
        events = self.stack.get("/assets/events", source_dag_id=self.dag)["asset_events"]
        assert [(event["extra"]["version"], event["extra"]["refresh"]) for event in events] == made
        return f"{len(events)} for {len(made)} commits"


@dataclass
class Seen:
    fault: Fault
    table: str
    ledger: str
    leftovers: str
    events: str

    def __str__(self) -> str:
        return " | ".join((self.fault.what, self.table, self.ledger, self.leftovers, self.events))


def strike(victim: Victim, case: Case) -> Seen:
    fault = case.fault
    victim.offer(LOST, case.nap)
    victim.start()
    token = victim.token
    victim.offer(NEW)
    fault.inject(victim)
    victim.stack.until_state(victim.dag, victim.run_id, fault.ends, seconds=LIMIT)
    rows = victim.rows()
    assert rows == (NEW if fault.heals else OLD)
    table = "new, by the next try" if fault.heals else "old, new after the next run"
    if not fault.heals:
        victim.grow_patient()
        run_id = victim.stack.trigger(victim.dag)
        victim.stack.until_state(victim.dag, run_id, "success", seconds=LIMIT)
        assert victim.rows() == NEW
    if fault.zombie:
        (victim.folder / "awake").touch()
    until(f"end of the job of {victim.name}", lambda: not jobs_of(token), LIMIT)
    if not fault.zombie:
        until(f"end of the stage of {victim.name}", lambda: not victim.left(), LIMIT)
    assert victim.rows() == NEW
    lost, *others = victim.refreshes()
    assert lost.token == token
    assert lost.state in fault.history
    assert lost.finished_at is not None
    assert [other.state for other in others] == [RefreshState.SUCCEEDED]
    assert victim.workspace.ledger.list_stages(victim.identifier) == []
    return Seen(fault, table, f"{lost.state}: {lost.error}", f"{len(victim.left())} folders", victim.check_versions())


@dataclass
class Reader:
    victims: list[Victim]
    polls: int = 0
    wrong: list[str] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        while not self.done.wait(1):
            for victim in self.victims:
                rows = victim.rows()
                self.polls += 1
                if rows not in (OLD, NEW):
                    self.wrong.append(f"{victim.name}: {rows}")


@dataclass(frozen=True)
class Case:
    fault: Fault
    engine: str

    def __str__(self) -> str:
        return f"{self.fault.name}_{self.engine}"

    @property
    def nap(self) -> int:
        return SPARK_NAP if self.fault.zombie else LONG_NAP

    @property
    def mark(self) -> object:
        short = (self.engine == "spark") == (self.fault.name in BY_SPARK)
        return pytest.param(self, id=str(self), marks=() if short else (pytest.mark.long, pytest.mark.timeout(3600)))


CASES = [Case(fault, engine) for fault in FAULTS for engine in ENGINES]
RESTARTS = [Case(RESTART, engine) for engine in ENGINES]


def define(stack: Stack, cases: list[Case], folder: Path) -> Definitions:
    sources = "".join(SOURCE.format(name=case, path=folder / str(case) / "rows") for case in cases)
    tables = "".join(TABLE.format(name=case, spark=ENGINES[case.engine], settings=case.fault.settings) for case in cases)
    stack.airflow.define("faults.yaml", f"{DEFINITIONS}sources:{sources}dynamic_tables:{tables}")
    return load_definitions(stack.airflow.definitions / "faults.yaml")


@pytest.fixture(scope="module")
def victims(stack: Stack, request: pytest.FixtureRequest) -> Iterator[dict[Case, Victim]]:
    folder = stack.airflow.home / "faults"
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    chosen = [case for item in items if isinstance(case := item.callspec.params.get("case"), Case)]
    with stack.airflow.workspace() as workspace:
        for case in chosen:
            Victim(stack, workspace, folder / str(case)).offer(OLD)
        definitions = define(stack, chosen, folder)
        found = {case: Victim(stack, workspace, folder / str(case)) for case in chosen}
        for case, victim in found.items():
            victim.refresh_without_airflow(definitions)
            if case.fault.name in TIMEOUTS:
                attribute, seconds = TIMEOUTS[case.fault.name]
                hasty = str(victim.hasty)
                stack.airflow.append(TIMEOUT.format(dag=victim.dag, hasty=hasty, attribute=attribute, seconds=seconds))
            if str(case) == "execution_timeout_spark":
                victim.grow_hasty()
        until("DAGs", lambda: stack.get("/dags", dag_id_pattern="dynamic_table__lake__faults__%")["total_entries"] == len(found))
        yield found


@pytest.fixture(scope="module")
def reader(victims: dict[Case, Victim], fault_report: FaultReport) -> Iterator[Reader]:
    reader = Reader(list(victims.values()))
    thread = threading.Thread(target=reader.read)
    thread.start()
    yield reader
    reader.done.set()
    thread.join()
    fault_report.polled(reader.polls, len(reader.wrong))


@pytest.fixture(scope="module")
def strikes(victims: dict[Case, Victim], reader: Reader) -> Iterator[dict[Case, Future[Seen]]]:  # noqa: ARG001 - reads meanwhile
    with ThreadPoolExecutor(6) as pool:
        yield {case: pool.submit(strike, victim, case) for case, victim in victims.items() if case.fault is not RESTART}


@pytest.mark.large
@pytest.mark.parametrize("case", [case.mark for case in CASES])
def test_a_fault_leaves_the_old_version_and_the_next_refresh_heals(
    case: Case, strikes: dict[Case, Future[Seen]], fault_report: FaultReport
) -> None:
    seen = strikes[case].result()
    fault_report.injected(case.fault.what)
    fault_report.note(f"{case}: {seen}")


@dataclass
class Loops:
    """Tables that are refreshed all the time, while the scheduler dies and the threshold of that mode changes.

    One stays so. The other is made by who takes it for a scheduled one, is continuous in this Airflow, and scheduled in the next.
    """

    kept: Live
    switched: Live

    def begin(self) -> None:
        self.kept.begin(LOOP)
        self.switched.add(1)
        self.switched.define(LOOP.replace("3 seconds", "1 minute"))
        definitions = load_definitions(self.switched.file, conventions=Conventions(threshold=Freshness(SHORT_THRESHOLD)))
        table, long_ago = definitions.tables[self.switched.identifier], datetime(2020, 1, 1, tzinfo=UTC)
        with self.switched.stack.airflow.workspace() as workspace:
            request = RefreshRequest(table, definitions.sources, long_ago, token=str(uuid.uuid4()), owner="nobody")
            run(workspace, request, cluster_stand_in.run)
        assert self.mode() is RefreshMode.FULL
        self.switched.begin(LOOP.replace("3 seconds", "1 minute"), 2)
        self.switched.until_rows(1, 2)
        assert self.mode() is RefreshMode.CONTINUOUS
        self.kept.until_rows(1)

    def go_on(self) -> None:
        self.kept.add(2)
        self.switched.add(3)
        until("a scheduled refresh", lambda: self.mode() is RefreshMode.FULL, LIMIT)
        self.switched.stack.trigger(self.switched.dag)  # rather than wait for the next minute
        self.switched.until_rows(1, 2, 3)
        self.kept.until_rows(1, 2)
        for told in ("changes from FULL to CONTINUOUS", "changes from CONTINUOUS to FULL"):
            assert self.switched.times_said(told) == 1
        for live in (self.kept, self.switched):
            live.pause()
            live.check_history()

    def mode(self) -> RefreshMode:
        handler = self.switched.entry().refresh_handler
        assert handler.job_detail["workflowId"] == self.switched.dag
        return handler.actual_refresh_mode


@pytest.fixture(scope="module")
def loops(stack: Stack, strikes: dict[Case, Future[Seen]]) -> Loops:
    wait(strikes.values())
    loops = Loops(Live(stack, "kept"), Live(stack, "switched"))
    loops.begin()
    return loops


@pytest.fixture(scope="module")
def restarts(stack: Stack, victims: dict[Case, Victim], loops: Loops) -> dict[Case, Seen]:  # noqa: ARG001 - hit, too
    """The restarts of the scheduler, which hit everybody; each with another threshold than the one at the beginning."""
    stack.airflow.environ["AIRFLOW__DYNAMIC_TABLES__FRESHNESS_THRESHOLD"] = f"{SHORT_THRESHOLD} seconds"
    return {case: strike(victim, case) for case, victim in victims.items() if case.fault is RESTART}


@pytest.mark.large
@pytest.mark.parametrize("case", [case.mark for case in RESTARTS])
def test_a_scheduler_that_is_killed_and_started_again(case: Case, restarts: dict[Case, Seen], fault_report: FaultReport) -> None:
    fault_report.note(f"{case}: {restarts[case]}")
    fault_report.injected(case.fault.what)


@pytest.mark.large
def test_tables_that_are_refreshed_all_the_time_go_on_under_the_next_scheduler(
    restarts: dict[Case, Seen], loops: Loops, fault_report: FaultReport
) -> None:
    assert restarts, "the restart has to be chosen, too"
    loops.go_on()
    fault_report.injected("kill -9 scheduler of a continuous table")


@pytest.mark.large
def test_a_commit_of_a_task_that_was_taken_away_has_its_event_once(stack: Stack, loops: Loops) -> None:
    run_maintenance(stack)
    for live in (loops.kept, loops.switched):
        due = [refresh.token for refresh in live.committed() if refresh.report is not None]
        assert sorted(live.told()) == sorted(due)


@pytest.mark.large
def test_readers_saw_nothing_but_versions_and_the_maintenance_leaves_no_stage(
    stack: Stack,
    victims: dict[Case, Victim],
    strikes: dict[Case, Future[Seen]],
    reader: Reader,
) -> None:
    wait(strikes.values())
    run_maintenance(stack)
    assert [left for victim in victims.values() for left in victim.left()] == []
    assert [stage for victim in victims.values() for stage in stack.airflow.stages(str(victim.identifier))] == []
    assert reader.polls > 0
    assert reader.wrong == []


def run_maintenance(stack: Stack) -> None:
    stack.unpause(MAINTENANCE)
    run_id = stack.trigger(MAINTENANCE)
    stack.until_state(MAINTENANCE, run_id, "success", task_id="sweep")
