"""An object store that refuses to write: a clear error, the last version untouched, and all well again when it is back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.faults.report import FaultReport
from tests.support.faults.truth import check_all_settled, content
from tests.support.faults.victims import Attempt, Site, refresh, sweep, victim, when_leases_are_over
from tests.support.object_store import BUCKET, ObjectStore, running_bucket

BASE = Attempt("base", {"1": [1], "2": [2]})
STRUCK = Attempt("struck", {"1": [10]}, planned=("1",))
NEXT = Attempt("next", {"3": [30]}, "somebody else", planned=("3",))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """One store for all tests of this module; s3fs keeps its connections to it."""
    with running_bucket() as running:
        yield running


@pytest.fixture
def site(store: ObjectStore, tmp_path: Path, empty_state: Path) -> Iterator[Site]:
    shutil.copy(empty_state, tmp_path / "state.db")
    yield Site(tmp_path, f"sqlite:///{tmp_path}/state.db", f"s3a://{BUCKET}/{tmp_path.name}")
    store.serve()


def refresh_there(environment: dict[str, str], site: Site, attempt: Attempt) -> object:
    """Run an attempt in a process that does not know of the store yet."""
    os.environ.update(environment)
    return refresh(site, attempt)


def struck(store: ObjectStore, site: Site, point: str, how: str) -> str:
    """The error of a refresh from whose ``point`` on the store refuses to write."""
    _, error = victim(point, partial(store.refuse, how), refresh_there, store.environment, site, STRUCK).answer()
    assert error is not None
    return error


PLAN = "_plan.json cannot be written"
NOT_LANDED = "CommitRejectedError: The metadata of sales.revenue could not be written"
UNKNOWN = "CommitUnknownError: The outcome of the commit of sales.revenue is unknown"


@pytest.mark.large
@pytest.mark.parametrize(
    ("point", "how", "said"),
    [
        ("opened", "connection", PLAN),
        ("commit", "SlowDown", NOT_LANDED),
        ("commit", "connection", NOT_LANDED),
        ("publishing", "SlowDown", UNKNOWN),
        ("publishing", "AccessDenied", NOT_LANDED),
        ("publishing", "connection", UNKNOWN),
    ],
)
def test_a_store_that_refuses_to_write(
    store: ObjectStore, site: Site, fault_report: FaultReport, point: str, how: str, said: str
) -> None:
    refresh(site, BASE)
    fault_report.injected("object store error")
    assert said in struck(store, site, point, how)
    with site.open() as workspace:
        assert content(workspace) == {"1": [1], "2": [2]}, "the last version can be read while nothing can be written"
        store.serve()
        refresh(site, NEXT)
        sweep(site, when_leases_are_over)
        assert content(workspace) == {"1": [1], "2": [2], "3": [30]}
        check_all_settled(site, workspace)
