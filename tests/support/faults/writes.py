"""Writes of a table that are struck: the state before, the call in the process that is struck, and the next process's work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import psycopg

from airflow_dynamic_tables.core.formats import TableFormat
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.formats.small_files import DEFAULT_LIMITS
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.ctas.running import create_table_as
from airflow_dynamic_tables.services.ctas.wanted import Created, CtasOutcome, Purpose, QueryPlace, WantedTable
from airflow_dynamic_tables.services.deployments import diffing as applying
from airflow_dynamic_tables.services.deployments.diffing import differences
from airflow_dynamic_tables.services.deployments.values import Change
from airflow_dynamic_tables.services.maintenance import compacting
from airflow_dynamic_tables.services.writes import quarantine
from tests.support.faults.truth import columns, content, data_files, versions
from tests.support.faults.victims import (
    REVENUE,
    Attempt,
    Site,
    apply_with_refresh,
    declare,
    leave_in_quarantine,
    refresh,
    restore,
    sweep,
)

Rows = Mapping[str, Sequence[int]]

BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {"1": [10, 11], "3": [3]}, planned=("1", "3"))
MANY = DEFAULT_LIMITS.many + 1


class Write(ABC):
    """A write with token ``struck`` that replaces the ``old`` rows by the ``new`` ones, and the columns."""

    old: ClassVar[Rows] = BASE.days
    new: ClassVar[Rows] = {**BASE.days, **STRUCK.days}
    old_columns: ClassVar[tuple[str, ...]] = ("ds", "n")
    new_columns: ClassVar[tuple[str, ...]] = ("ds", "n")
    cures: ClassVar[tuple[str, ...]] = ("retry", "other owner", "sweep")
    steps: ClassVar[tuple[str, ...]] = ("begin", "opened", "planned", "writing", "written", "result", "commit")
    makes_table: ClassVar[bool] = False
    """Whether a table in a server is replaced by its stage, and not only its rows."""

    def fits(self, table_format: TableFormat) -> bool:  # noqa: ARG002
        """Return whether tables of a format can be written so; others refuse it."""
        return True

    def prepare(self, site: Site) -> None:
        """Make the old version."""
        refresh(site, BASE)

    @abstractmethod
    def run(self, site: Site) -> object:
        """Write in this process."""

    @abstractmethod
    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        """Do what the next process does, and return the rows that the table has then.

        :param seen: the rows that it has now.
        """

    def check_swept(self, site: Site, landed: bool) -> None:  # noqa: B027
        """Check what only this write promises after a sweep."""


def owner_of(cure: str) -> str:
    """The owner of the next write."""
    return "another owner" if cure == "other owner" else STRUCK.owner


class Refresh(Write):
    """A refresh of two partitions."""

    def run(self, site: Site) -> object:
        return refresh(site, STRUCK)

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        version = refresh(site, Attempt("next", {"3": [30]}, owner_of(cure), ("3",)))
        with site.open() as workspace:
            assert version.number == len(versions(workspace))
            is_kept = seen == self.new and site.tables_url is None
            assert bool(data_files(site, "struck")) == is_kept, "the next refresh cleans up"
        return {**seen, "3": [30]}


class FirstWrite(Write):
    """A write of a table that does not exist yet."""

    old: ClassVar[Rows] = {}
    new = STRUCK.days
    old_columns: ClassVar[tuple[str, ...]] = ()
    makes_table = True

    def prepare(self, site: Site) -> None:
        pass


class FirstRefresh(FirstWrite, Refresh):
    """The first refresh of a table."""


class Rebuild(Write):
    """A full refresh that drops a column; the next one adds another."""

    new: ClassVar[Rows] = {"1": [10]}
    old_columns = ("ds", "n", "extra")
    makes_table = True

    def fits(self, table_format: TableFormat) -> bool:
        return table_format.has_history or table_format.in_server  # a metastore cannot change columns and partitions in one step

    def prepare(self, site: Site) -> None:
        refresh(site, Attempt("base", self.old, more=("extra",)))

    def run(self, site: Site) -> object:
        return refresh(site, Attempt("struck", self.new, full_refresh=True))

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:  # noqa: ARG002
        refresh(site, Attempt("next", {"1": [100]}, owner_of(cure), more=("other",), full_refresh=True))
        with site.open() as workspace:
            assert columns(workspace) == ["ds", "n", "other"]
        return {"1": [100]}


class Apply(Rebuild):
    """``apply --refresh`` of a definition that lost a column. ``diff`` says what is left to do, and ``apply`` does that."""

    def prepare(self, site: Site) -> None:
        declare(site, ("extra",))
        super().prepare(site)

    def run(self, site: Site) -> object:
        return apply_with_refresh(site, Attempt("struck", self.new, full_refresh=True))

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        is_new = seen == self.new
        assert difference(site) is (Change.UNCHANGED if is_new else Change.REBUILD)
        done = apply_with_refresh(site, Attempt("next", {"1": [100]}, owner_of(cure), full_refresh=True))
        assert done.outcome is (applying.ApplyOutcome.UNCHANGED if is_new else applying.ApplyOutcome.REFRESHED), done
        return seen if is_new else {"1": [100]}


def difference(site: Site) -> Change:
    """How the table differs from its definition, which has no extra column."""
    with site.open() as workspace:
        (found,) = differences(workspace, declare(site))
        return found.change


class Rollback(Write):
    """A rollback to the first version."""

    old: ClassVar[Rows] = {"1": [10]}
    new = BASE.days
    steps = ("opened", "restoring")
    with_columns = False

    def fits(self, table_format: TableFormat) -> bool:
        return table_format.has_history

    def prepare(self, site: Site) -> None:
        refresh(site, Attempt("base", BASE.days, more=self.new_columns[2:]))
        refresh(site, Attempt("later", self.old, full_refresh=True))

    def run(self, site: Site) -> object:
        return restore(site, 1, "struck", with_columns=self.with_columns)

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:  # noqa: ARG002
        restored = restore(site, 1, "again", with_columns=self.with_columns)
        with site.open() as workspace:
            assert (content(workspace), columns(workspace)) == (self.new, list(self.new_columns))
            assert restored.number == len(versions(workspace))
        refresh(site, Attempt("next", {"1": [100]}, owner_of(cure), full_refresh=True))
        return {"1": [100]}


class RollbackWithColumns(Rollback):
    """``rollback --with-columns`` across a rebuild; `diff` says that the definition does not follow."""

    new_columns = ("ds", "n", "extra")
    with_columns = True

    def check_swept(self, site: Site, landed: bool) -> None:
        assert difference(site) is (Change.REBUILD if landed else Change.UNCHANGED)


class Create(FirstWrite):
    """CREATE OR REPLACE TABLE AS of a table that does not exist yet."""

    def run(self, site: Site) -> object:
        return create(site, STRUCK)

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        made = create(site, Attempt("next", {"3": [30]}, owner_of(cure)))
        assert made.outcome is (CtasOutcome.REPLACED if seen else CtasOutcome.CREATED)
        return {"3": [30]}


class Replace(Create):
    """CREATE OR REPLACE TABLE AS of a table that is there; permissions in a server stay."""

    old = BASE.days
    old_columns = Write.old_columns

    def prepare(self, site: Site) -> None:
        create(site, BASE)
        if site.tables_url is not None:
            with psycopg.connect(site.tables_url) as connection:
                connection.execute("GRANT SELECT ON revenue TO PUBLIC")

    def check_swept(self, site: Site, landed: bool) -> None:  # noqa: ARG002
        if site.tables_url is not None:
            with psycopg.connect(site.tables_url) as connection:
                granted = connection.execute("SELECT has_table_privilege('public', 'revenue', 'SELECT')").fetchone()
            assert granted == (True,)


def create(site: Site, attempt: Attempt, purpose: Purpose = Purpose.CREATE_OR_REPLACE) -> Created:
    """CREATE TABLE AS in this process."""
    query = "SELECT '1' AS ds, 1 AS n"
    wanted = WantedTable(REVENUE, query, ("lake", "sales"), QueryPlace(Path("query"), query), purpose, site.format, ("ds",))
    with site.open() as workspace:
        return create_table_as(workspace, Definitions(), wanted, (attempt.token, attempt.owner), attempt.job)


class Compaction(Write):
    """What the maintenance does for a table of many small files: neither rows nor versions change."""

    old: ClassVar[Rows] = {"1": list(range(MANY)), "2": [2]}
    new = old
    cures = ("same partition", "other partition", "sweep")
    steps = ("opened",)

    def fits(self, table_format: TableFormat) -> bool:
        return table_format.name in ("iceberg", "parquet")

    def prepare(self, site: Site) -> None:
        refresh(site, Attempt("base", self.old, scattered=True))

    def run(self, site: Site) -> int:
        with site.open() as workspace:
            return compacting.compact(workspace, REVENUE).files

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        changed = {"2": [20]} if cure == "other partition" else {"1": [10]} if cure == "same partition" else {}
        if changed:
            refresh(site, Attempt("next", changed, "another owner", tuple(changed)))
        sweep(site)
        self.run(site)
        with site.open() as workspace:
            assert [version.token for version in versions(workspace)] == ["base", *(["next"] if changed else [])]
            assert len(workspace.existing_table(REVENUE).read().files) == 2
        return {**seen, **changed}


HELD = Attempt("struck", {"1": [10]}, planned=("1",))


class Hold(Write):
    """A refresh whose stage is put into quarantine."""

    new = BASE.days
    steps = (*Write.steps[:-1], "holding")

    def run(self, site: Site) -> None:
        leave_in_quarantine(site, HELD)

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:
        refresh(site, Attempt("next", {"3": [30]}, owner_of(cure), ("3",)))
        with site.open() as workspace:
            stage = workspace.ledger.get_stage("struck")
            if stage is None or stage.state is not StageState.QUARANTINED:
                return {**seen, "3": [30]}
            assert quarantine.publish(workspace, "struck").token == "struck"
        return {**seen, "1": [10], "3": [30]}

    def check_swept(self, site: Site, landed: bool) -> None:
        assert state_of_struck(site) in ((StageState.QUARANTINED,) if landed else (StageState.ABORTED, None))


class Publish(Write):
    """Publishing from quarantine."""

    new: ClassVar[Rows] = {"1": [10], "2": [2]}
    cures = ("retry", "sweep")
    steps = ()

    def prepare(self, site: Site) -> None:
        super().prepare(site)
        leave_in_quarantine(site, HELD)

    def run(self, site: Site) -> object:
        with site.open() as workspace:
            return quarantine.publish(workspace, "struck")

    def heal(self, site: Site, cure: str, seen: Rows) -> Rows:  # noqa: ARG002
        with site.open() as workspace:
            assert quarantine.publish(workspace, "struck").token == "struck"
        return self.new

    def check_swept(self, site: Site, landed: bool) -> None:
        assert state_of_struck(site) is (StageState.COMMITTED if landed else StageState.QUARANTINED)


def state_of_struck(site: Site) -> StageState | None:
    """The state of the stage that was struck."""
    with site.open() as workspace:
        stage = workspace.ledger.get_stage("struck")
        return stage.state if stage is not None else None


WRITES: dict[str, Write] = {
    "first refresh": FirstRefresh(),
    "refresh": Refresh(),
    "rebuild": Rebuild(),
    "apply": Apply(),
    "create": Create(),
    "replace": Replace(),
    "rollback": Rollback(),
    "rollback with columns": RollbackWithColumns(),
    "compaction": Compaction(),
    "hold": Hold(),
    "publish": Publish(),
}
