"""Kill -9 at every step of every write of every kind of table.

Readers see the old version or the new one, complete. The next process commits, no row is lost or doubled, and a sweep leaves
nothing behind. The matrix has each write, place, step and cure. The base set has one cell for each write, and of each format
one for a refresh and one for a new table. The large set has one cure for each step, and the long form the others.
"""

from __future__ import annotations

from itertools import cycle, product

import pytest

from airflow_dynamic_tables.core.formats import FORMATS
from airflow_dynamic_tables.exceptions import TableAlreadyExistsError
from airflow_dynamic_tables.formats.hive import stage
from airflow_dynamic_tables.services.workspace import Workspace
from tests.support.faults.places import PLACES, Place, fitting
from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, check_names, columns, content
from tests.support.faults.victims import REVENUE, Attempt, Site, kill, refresh, sweep, trail
from tests.support.faults.writes import BASE, STRUCK, WRITES, Compaction, Create, Hold, Publish, Refresh, Write, create

NAMES = {write: name for name, write in WRITES.items()}


def _cells() -> list[object]:
    """Every step of every write in every place with every cure; see above for the marks."""
    cells: list[object] = []
    pairs = [(write, place) for write in WRITES.values() for place in fitting(write)]
    for number, (write, place) in enumerate(pairs):
        steps = place.steps(write)
        short = dict(zip(steps, cycle(write.cures[number % 3 :] + write.cures[: number % 3]), strict=False))
        landed = [place.has_landed(write, step) for step in steps].index(True)
        telling = steps[landed - number % 2]  # the last step before the new version is seen, or the first one after it
        in_base = place is fitting(write)[0] or (not place.repeats and write in (WRITES["refresh"], WRITES["create"]))
        for step, cure in product(steps, write.cures):
            size = () if in_base and step == telling else (pytest.mark.large,)
            marks = size if short[step] == cure else (pytest.mark.long,)
            name = f"{NAMES[write]}-{place.site}-{step}-{cure}"
            cells.append(pytest.param(place.site, place, write, step, cure, id=name, marks=(*place.marks, *marks)))
    return cells


@pytest.mark.parametrize(("site", "place", "write", "step", "cure"), _cells(), indirect=["site"])
def test_killed_at(
    site: Site, place: Place, write: Write, step: str, cure: str, fault_report: FaultReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_PATIENCE", 600.0 if isinstance(write, Compaction) else 1.0)
    write.prepare(site)
    kill(fault_report, step, write.run, site)
    landed, decided = place.has_landed(write, step), place.is_decided(write, step)
    with site.open() as workspace:
        check_seen(workspace, write, landed)
        if cure == "sweep":
            report = sweep(site)
            if not isinstance(write, Compaction | Hold | Publish):
                assert report.completed == (("struck",) if decided and step != "completed" else ())
                assert report.aborted == (("struck",) if not decided and step != "begin" else ())
            check_seen(workspace, write, decided)
            check_names(site, workspace)
            write.check_swept(site, decided)
            landed = decided
        elif decided and not landed:
            with pytest.raises(TableAlreadyExistsError, match="was created by another client meanwhile"):
                create(site, Attempt("second", {"3": [30]}, STRUCK.owner))
            landed = decided
            check_seen(workspace, write, landed)
        rows = dict(sorted(write.heal(site, cure, write.new if landed else write.old).items()))
        assert content(workspace) == rows
        sweep(site)
        assert content(workspace) == rows
        check_all_settled(site, workspace)


def check_seen(workspace: Workspace, write: Write, landed: bool) -> None:
    rows = write.new if landed else write.old
    assert content(workspace) == rows
    if write.old_columns:  # a Hive table records the columns of its first version a step after it shows the rows
        assert sorted(columns(workspace)) == sorted(write.new_columns if landed else write.old_columns)
    elif isinstance(write, Create) and not rows:
        assert not workspace.catalog("lake").table_exists(REVENUE.path)


def _pairs(is_possible: bool) -> list[object]:
    return [
        pytest.param(place.site, place, write, id=f"{name}-{place.site}", marks=(*place.marks, pytest.mark.large))
        for name, write in WRITES.items()
        for place in PLACES
        if write.fits(FORMATS[place.format]) == is_possible
    ]


@pytest.mark.parametrize(("site", "place", "write"), _pairs(is_possible=True), indirect=["site"])
def test_the_matrix_has_all_steps(site: Site, place: Place, write: Write) -> None:
    write.prepare(site)
    reached, error = trail(write.run, site).answer()
    assert error is None
    assert tuple(step for step in reached if not step.startswith(("early-", "late-"))) == place.steps(write)


@pytest.mark.parametrize(("site", "place", "write"), _pairs(is_possible=False), indirect=["site"])
def test_the_matrix_leaves_out_what_is_refused(site: Site, place: Place, write: Write) -> None:
    """By the preparation already, or without a single file that is compacted."""
    outcome, error = trail(prepare_and_run, site, write).answer()
    assert error is None or error.startswith(("UnsupportedError", "SchemaEvolutionError")), place
    assert error is not None or "swap" not in outcome[len(outcome) - outcome[::-1].index("completed") :]


def prepare_and_run(site: Site, write: Write) -> None:
    write.prepare(site)
    write.run(site)


def _cleaning_up() -> list[object]:
    """Where a write was left, and where the process that cleans up is killed; CI has one heir for each step."""
    cells: list[object] = []
    for place, write in product(PLACES, (WRITES["refresh"], WRITES["create"])):
        steps = ("settling", "deleted")
        lefts = [("planned", step) for step in steps]
        if isinstance(write, Refresh):
            fence = tuple(f"early-{step}" for step in place.commit) if place.commit == ("swap", "swapped", "landed") else ()
            lefts += [(place.commit[0] if fence else "publishing", step) for step in (*fence, *steps)]
        elif place.is_drafted(write):
            lefts += [("naming", step) for step in steps]
        heirs = ("next refresh", "sweep") if isinstance(write, Refresh) else ("sweep",)
        short = set(zip(lefts, cycle(heirs), strict=False))
        for left, heir in product(lefts, heirs):
            size = () if place.site == "sqlite" and left[0] != "planned" else (pytest.mark.large,)
            marks = size if (left, heir) in short else (pytest.mark.long,)
            name = f"{NAMES[write]}-{place.site}-{'-'.join(left)}-{heir}"
            cells.append(pytest.param(place.site, write, *left, heir, id=name, marks=(*place.marks, *marks)))
    return cells


@pytest.mark.parametrize(("site", "write", "left_at", "step", "heir"), _cleaning_up(), indirect=["site"])
def test_killed_while_cleaning_up(
    site: Site, write: Write, left_at: str, step: str, heir: str, fault_report: FaultReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that cleans up is killed as well; before the stage is fenced off, and after."""
    monkeypatch.setattr(stage, "_PATIENCE", 1.0)
    write.prepare(site)
    kill(fault_report, left_at, write.run, site)
    if heir == "sweep":
        kill(fault_report, step, sweep, site)
    else:
        kill(fault_report, step, refresh, site, Attempt("heir", STRUCK.days, "another owner", STRUCK.planned))
    with site.open() as workspace:
        check_seen(workspace, write, landed=False)
        if isinstance(write, Create):
            sweep(site)
            check_seen(workspace, write, landed=False)
        else:
            refresh(site, Attempt("next", {"3": [30]}, planned=("3",)))
            sweep(site)
            assert content(workspace) == {**BASE.days, "3": [30]}
        check_all_settled(site, workspace)
