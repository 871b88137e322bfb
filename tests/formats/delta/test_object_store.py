"""Delta tables in an object store: an entry is put where there is none, and what the store says, or does not, is understood."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
import s3fs
from deltalake import DeltaTable

from airflow_dynamic_tables.clients.delta.log import DeltaLog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, CommitRejectedError, CommitUnknownError
from airflow_dynamic_tables.formats.registry import bind
from tests.support.benches.delta import refresh_at, staged_at, table_at
from tests.support.object_store import BUCKET, ObjectStore, running_bucket


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """One store for all tests of this module; s3fs keeps its connections to it."""
    with running_bucket() as running:
        yield running


@pytest.fixture
def location(store: ObjectStore) -> Iterator[str]:
    """Where a table is to lie."""
    yield f"s3://{BUCKET}/{uuid4().hex}"
    store.serve()


def seen(location: str, store: ObjectStore) -> dict[str, list[int]]:
    """The rows that delta-rs reads, by day."""
    options = {"aws_endpoint_url": store.url, "aws_allow_http": "true"}
    rows = DeltaTable(location, storage_options=options).to_pyarrow_table().to_pylist()
    return {day: sorted(row["n"] for row in rows if row["ds"] == day) for day in sorted({row["ds"] for row in rows})}


def test_versions_in_a_store_are_made_read_and_forgotten(store: ObjectStore, location: str) -> None:
    for number in range(4):
        refresh_at(location, {"1": [number], "2": [2]}, *(("1", "2") if number else ()))
    assert seen(location, store) == {"1": [3], "2": [2]}
    binding = bind(Source(TableIdentifier("lake", "sales", "revenue"), "delta", location), (), "v")
    assert sum(len(part.files) for part in binding.parts) == 2
    assert table_at(location).stage("back").restore(2, lambda: None).number == 5
    assert seen(location, store) == {"1": [1], "2": [2]}


@pytest.mark.parametrize(("how", "error"), [("AccessDenied", CommitRejectedError), ("connection", CommitUnknownError)])
def test_a_store_that_refuses_the_entry_says_whether_it_landed(
    store: ObjectStore, location: str, how: str, error: type[Exception]
) -> None:
    refresh_at(location, {"1": [1]})
    stage, request = staged_at(location, "struck", {"1": [10]}, "1")
    with pytest.raises(error):
        stage.commit(request, lambda: store.refuse(how))
    store.serve()
    assert stage.outcome() is None
    assert seen(location, store) == {"1": [1]}
    stage.fence()
    with_next = refresh_at(location, {"2": [2]}, "2")
    assert with_next.number == 2
    assert seen(location, store) == {"1": [1], "2": [2]}


def test_a_lost_answer_of_a_put_that_landed_is_settled_by_looking(
    store: ObjectStore, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh_at(location, {"1": [1]})
    put = s3fs.S3FileSystem.pipe_file

    def lost(self: s3fs.S3FileSystem, path: str, *arguments: object, **options: object) -> None:
        put(self, path, *arguments, **options)
        if path.endswith(".json"):
            raise ConnectionError("the answer was lost")

    stage, request = staged_at(location, "struck", {"1": [10]}, "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", lost)
    assert stage.commit(request, lambda: None).number == 2
    monkeypatch.undo()
    assert seen(location, store) == {"1": [10]}
    outcome = stage.outcome()
    assert outcome is not None
    assert outcome.number == 2


AFTER = ("after-connection", "after-SlowDown", "after-InternalError", "after-AccessDenied", "after-ConditionalRequestConflict")
ONCE = ("once-connection", "once-AccessDenied", "once-ConditionalRequestConflict")


@pytest.mark.sampled
@pytest.mark.parametrize("how", [*AFTER, *ONCE])
def test_whatever_is_said_of_an_entry_the_log_tells_whether_it_landed(store: ObjectStore, location: str, how: str) -> None:
    """A client sends its request again after some of these, and hears then that there is such an object."""
    refresh_at(location, {"1": [1]})
    stage, request = staged_at(location, "struck", {"1": [10]}, "1")
    struck = iter([how])
    try:
        landed = stage.commit(request, lambda: store.refuse(next(struck, "nothing")))
    except CommitRejectedError:
        assert how == "once-AccessDenied"
        assert stage.outcome() is None
        assert seen(location, store) == {"1": [1]}
    else:
        assert landed == stage.outcome()
        assert seen(location, store) == {"1": [10]}
        assert [version.number for version in table_at(location).versions()] == [1, 2]


def test_who_may_not_even_look_after_a_put_does_not_know_whether_it_landed(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials can end between a try whose answer was lost and the next one."""
    refresh_at(location, {"1": [1]})
    stage, request = staged_at(location, "struck", {"1": [10]}, "1")
    put = s3fs.S3FileSystem.pipe_file

    def ended(self: s3fs.S3FileSystem, path: str, *arguments: object, **options: object) -> None:
        put(self, path, *arguments, **options)
        monkeypatch.setattr(s3fs.S3FileSystem, "exists", denied)
        raise PermissionError("The provided token has expired.")

    def denied(*_: object) -> bool:
        raise PermissionError("The provided token has expired.")

    monkeypatch.setattr(s3fs.S3FileSystem, "pipe_file", ended)
    assert stage.commit(request, lambda: None).number == 2
    monkeypatch.undo()
    assert stage.outcome() is not None


def test_of_committers_at_once_each_lands_and_none_is_lost(store: ObjectStore, location: str) -> None:
    refresh_at(location, {str(day): [0] for day in range(4)})
    ready = threading.Barrier(4)
    failures: list[BaseException] = []

    def commit(day: str) -> None:
        tries: list[int] = []

        def all_at_once() -> None:
            tries.append(1)
            if len(tries) == 1:
                ready.wait(120)

        try:
            refresh_at(location, {day: [1]}, day, before=all_at_once)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(str(day),)) for day in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert seen(location, store) == {str(day): [1] for day in range(4)}
    assert [version.number for version in table_at(location).versions()] == [1, 2, 3, 4, 5]


def test_what_cannot_be_listed_is_not_taken_for_nothing(store: ObjectStore, location: str) -> None:
    refresh_at(location, {"1": [1]})
    store.refuse("listing")
    with pytest.raises(CatalogUnavailableError):
        table_at(location).current()
    store.serve()
    current = table_at(location).current()
    assert current is not None
    assert DeltaLog(location).versions() == [0]
