"""Everything that the checker knows: the tables as they have to be, who is at work, and what was done so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.refresh.plan import PLAN_FILE
from airflow_dynamic_tables.ledger.base import HOLDING, Stage, StageState
from airflow_dynamic_tables.services.workspace import Workspace, utc_now
from tests.support.faults.cutting_proxy import CuttingProxy
from tests.support.faults.model.lakes.base import KEPT, Lake
from tests.support.faults.model.state import Broken, Change, TableState
from tests.support.faults.model.strikes import Running
from tests.support.faults.model.work import Outcome, Place, Work
from tests.support.faults.victims import MARCH, Site

DAYS = ("1", "2", "3", "4")
OWNERS = ("ann", "bob", "cem")

_MARGIN = timedelta(seconds=20)
"""How near to its end a lease may be so that nobody can say whether it is over."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is, or was, in quarantine, and what the table was like when it was planned: versions ever made, and those of now."""

    change: Change
    planned_on: tuple[int, tuple[int, ...]]


@dataclass
class Scene:
    """A table, its world, and the model of both. ``cable`` is a site behind a wire that can be cut."""

    site: Site
    lake: Lake
    workspace: Workspace
    random: Random
    cable: Site | None = None
    proxy: CuttingProxy | None = None
    state: TableState = field(default_factory=TableState)
    former: dict[str, TableState] = field(default_factory=dict)
    """Tables that were renamed, by their names now."""
    changes: dict[str, Change] = field(default_factory=dict)
    """What every token would do."""
    present: set[str] = field(default_factory=set)
    """Tokens of the work that was begun on the table of now, not on one that was renamed or dropped since."""
    bases: dict[str, set[int | None]] = field(default_factory=dict)
    """The versions on which a token may have been planned, by their numbers; with ``None`` maybe on none."""
    planned: set[str] = field(default_factory=set)
    """Tokens that have a plan; all others look at the table yet."""
    struck: set[str] = field(default_factory=set)
    """Tokens of work to whose process something happened: they may land unnoticed, and the ledger may lag behind."""
    held: dict[str, Held] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    width: int = 0
    day: int = 0
    definitions: int = 0
    steps: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def victims(self) -> Site:
        """The site as those see it to whom something happens."""
        return hurried(self.site)

    @property
    def name(self) -> str:
        return self.lake.table.table

    def place(self, site: Site | None = None) -> Place:
        """Where work is done, by the definition of now."""
        return Place(site or self.site, self.lake.table, self.site.home / f"definition-{self.definitions}.yaml")

    def define(self, comment: str, keep: int = KEPT) -> None:
        """Declare the table, with as many columns as it shall have now."""
        self.definitions += 1
        columns = "".join(f", 1 AS c{number}" for number in range(1, self.width + 1))
        keys = "partitioned_by: [ds], " if self.lake.partitioned else ""
        keys += "" if self.lake.is_atomic else "atomicity: none, "
        self.place().definition.write_text(
            f"defaults: {{catalog: {self.lake.table.catalog}, database: {self.lake.table.database}}}\n"
            f"dynamic_tables: [{{name: {self.name}, format: {self.lake.format}, freshness: 1 day, {keys}comment: {comment}, "
            f"versions_to_keep: {keep}, version_max_age: 1 day, query: \"SELECT '1' AS ds, 1 AS n{columns}\"}}]\n"
        )

    def begin_anew(self) -> None:
        """The table is gone from its name; the next refresh makes another one, also one that has no plan yet."""
        self.state = TableState()
        self.present -= self.planned

    def stand(self, token: str) -> None:
        """A process goes on, or begins: unless it has a plan, it may plan on the version of now."""
        if token and token not in self.planned:
            self.bases.setdefault(token, set()).add(self.state.current)

    def look_for_plan(self, token: str) -> None:
        """A process stopped, or ended: what is planned stays so."""
        stage = self.workspace.ledger.get_stage(token) if token else None
        if stage is not None and (stage.state is not StageState.OPEN or exists(f"{stage.location}/{PLAN_FILE}")):
            self.planned.add(token)

    @property
    def moment(self) -> tuple[int, tuple[int, ...]]:
        """What tells whether the table changed its version."""
        return len(self.state.made), self.state.line

    def new_token(self) -> str:
        return f"t{len(self.changes) + 1}"

    def remember(self, work: Work) -> Work:
        """Keep what a piece of work that begins now would change."""
        self.changes[work.change.token] = work.change
        self.present.add(work.change.token)
        return work

    def new_refresh(self, kind: str = "refresh") -> Work:
        """A refresh of some days, or of the whole table, by somebody."""
        random = self.random
        whole = not self.lake.partitioned or random.random() < 0.35
        days = sorted(random.sample(DAYS, random.randint(1, 3)))
        token = self.new_token()
        number = len(self.changes) * 10
        rows = {
            day: tuple((number + 3 * place + one, self.width) for one in range(random.choice((0, 1, 1, 2, 3))))
            for place, day in enumerate(days)
        }
        self.day += random.choice((0, 0, 1))
        at = MARCH + timedelta(days=self.day + (random.choice((-2, -1, 0, 0, 0, 0)) if whole else 0))
        at_work = [running.work.owner for running in self.running if running.work.owner]
        owner = random.choice(at_work) if at_work and random.random() < 0.3 else random.choice(OWNERS)
        return Work(kind, Change(token, rows, () if whole else tuple(days), at, self.width), owner)

    def new_rollback(self) -> Work | None:
        """A wish for one of the versions that are kept."""
        possible = sorted(self.state.kept & {*self.state.line})
        if not possible or not self.lake.can_forget:
            return None
        number = self.random.choice(possible)
        return Work("rollback", Change(self.new_token(), restored=number), self.random.choice(OWNERS))

    def expected(self, work: Work) -> set[str]:
        """How a refresh or a rollback to which nothing happens may end."""
        blocked = self._blocked(work)
        if blocked is True:
            return {"ConflictError"}
        done = {self._unhindered(work)}
        return done if blocked is False else {*done, "ConflictError"}

    def _unhindered(self, work: Work) -> str:
        change = work.change
        if change.restored is None and not change.planned and self.state.is_fresher(change.at, work.ahead):
            return "skipped"
        if work.flaw == "fails":
            return "RuntimeError"
        if work.flaw:
            return "StageRejectedError"
        return "held" if work.kind == "hold" else "landed"

    def _blocked(self, work: Work) -> bool | None:
        """Whether a living owner holds some of the same days; ``None`` when that is about to change."""
        alive = {running.work.change.token for running in self.running}
        now = utc_now() + work.ahead
        unsure = False
        for stage in self.stages(HOLDING):
            if stage.owner == work.owner or stage.state is StageState.FENCING or stage.token not in alive:
                continue
            if self.changes[stage.token].overlaps(work.change):
                left = stage.lease_until - now
                unsure |= abs(left) < _MARGIN
                if left >= _MARGIN:
                    return True
        return None if unsure else False

    def stages(self, states: tuple[StageState, ...] = tuple(StageState)) -> list[Stage]:
        return self.workspace.ledger.list_stages(self.lake.table, states)

    def answered(self, work: Work, outcome: Outcome) -> None:
        """Check that what somebody was told is true; the table was looked at already."""
        if outcome.kind == "broken" or outcome.kind.startswith("exit code"):
            raise Broken(f"{work}: {outcome}")
        token = work.change.token
        has_landed = self.state.number_of(token) is not None
        if outcome.kind == "landed" and not has_landed and token in self.present:
            raise Broken(f"{token} was told that it landed, and did not")
        unknown = ("landed", "killed", "done", "CommitUnknownError")
        if outcome.kind not in unknown and has_landed and work.kind in ("refresh", "rollback"):
            raise Broken(f"{token} landed and was told {outcome}")


def hurried(site: Site) -> Site:
    """A site whose server ends a session after a second when its owner was stopped within a transaction."""
    if site.database_url.startswith("sqlite"):
        return site
    return replace(site, database_url=f"{site.database_url}?options=-c%20idle_in_transaction_session_timeout%3D1s")
