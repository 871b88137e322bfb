"""A table in Glue is renamed by one of those who try, and whoever comes next finishes what another one has decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from airflow_dynamic_tables.clients.iceberg.glue import RENAMED_TO, RenamingGlue
from tests.support.benches.iceberg import glue_properties
from tests.support.object_store import running_object_store


class Stalling(RenamingGlue):
    """Something happens before it decides, or before it does what it decided."""

    before_deciding: Callable[[], object] | None = None
    before_moving: Callable[[], object] | None = None

    def _decide(self, entry: Mapping[str, Any], new_name: str | None) -> None:
        happens, self.before_deciding = self.before_deciding, None
        if happens is not None:
            happens()
        super()._decide(entry, new_name)

    def _is_moved(self, entry: Mapping[str, Any], new_name: str) -> bool:
        happens, self.before_moving = self.before_moving, None
        if happens is not None:
            happens()
        return super()._is_moved(entry, new_name)


class Killed(BaseException):
    pass


def die() -> None:
    raise Killed


Clients = tuple[Stalling, RenamingGlue]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with running_object_store() as store:
        properties = {**glue_properties(store), "warehouse": tmp_path_factory.mktemp("glue").as_uri()}
        yield Stalling("first", **properties), RenamingGlue("second", **properties)


@pytest.fixture
def glue(clients: Clients) -> Iterator[Clients]:
    """Two clients of a Glue with one table, ``sales.draft``."""
    first, _ = clients
    first.create_namespace("sales")
    first.create_table("sales.draft", Schema())
    yield clients
    for table in first.list_tables("sales"):
        first.drop_table(table)
    first.drop_namespace("sales")


def names(client: RenamingGlue) -> list[str]:
    return sorted(name for _, name in client.list_tables("sales"))


def test_a_table_has_its_new_name_only_and_nothing_else_about_it_changed(glue: Clients) -> None:
    first, second = glue
    before = first._get_glue_table("sales", "draft")
    first.rename_table("sales.draft", "sales.named")
    after = second._get_glue_table("sales", "named")
    assert names(second) == ["named"]
    assert (after["Parameters"], after["StorageDescriptor"]) == (before["Parameters"], before["StorageDescriptor"])


def test_of_two_names_the_one_that_was_decided_first_is_given(glue: Clients) -> None:
    first, second = glue
    first.before_deciding = lambda: second.rename_table("sales.draft", "sales.discarded")
    with pytest.raises(NoSuchTableError):
        first.rename_table("sales.draft", "sales.named")
    assert names(first) == ["discarded"]


def test_what_was_decided_by_one_that_stalls_is_done_by_the_next(glue: Clients) -> None:
    first, second = glue

    def discard() -> None:
        with pytest.raises(NoSuchTableError, match="is called named now"):
            second.rename_table("sales.draft", "sales.discarded")

    first.before_moving = discard
    assert first.rename_table("sales.draft", "sales.named").name() == ("sales", "named")
    assert names(first) == ["named"]


@pytest.mark.parametrize("new_name", ["named", "discarded"])
def test_what_was_decided_by_one_that_died_is_done_by_the_next(glue: Clients, new_name: str) -> None:
    first, second = glue
    first.before_moving = die
    with pytest.raises(Killed):
        first.rename_table("sales.draft", "sales.named")
    assert names(second) == ["draft"]
    if new_name == "named":
        second.rename_table("sales.draft", "sales.named")
    else:
        with pytest.raises(NoSuchTableError, match="is called named now"):
            second.rename_table("sales.draft", "sales.discarded")
    assert names(second) == ["named"]


def test_a_table_is_not_renamed_to_what_it_is_called(glue: Clients) -> None:
    first, _ = glue
    with pytest.raises(TableAlreadyExistsError):
        first.rename_table("sales.draft", "sales.draft")
    assert names(first) == ["draft"]


def test_a_table_of_others_keeps_its_name_and_the_draft_can_get_another(glue: Clients) -> None:
    first, second = glue
    first.before_moving = lambda: second.create_table("sales.named", Schema())
    with pytest.raises(TableAlreadyExistsError):
        first.rename_table("sales.draft", "sales.named")
    assert RENAMED_TO not in first._get_glue_table("sales", "draft")["Parameters"]
    first.rename_table("sales.draft", "sales.discarded")
    assert names(first) == ["discarded", "named"]


def test_a_table_of_others_makes_void_what_one_decided_that_died(glue: Clients) -> None:
    first, second = glue
    first.before_moving = die
    with pytest.raises(Killed):
        first.rename_table("sales.draft", "sales.named")
    theirs = second.create_table("sales.named", Schema())
    second.rename_table("sales.draft", "sales.discarded")
    assert names(second) == ["discarded", "named"]
    assert second.load_table("sales.named").metadata.table_uuid == theirs.metadata.table_uuid


def left_by_both_names(first: Stalling, second: RenamingGlue) -> None:
    """Let one die right before the former entry goes."""
    first.before_moving = die
    with pytest.raises(Killed):
        first.rename_table("sales.draft", "sales.named")
    left = second._get_glue_table("sales", "draft")
    second.rename_table("sales.draft", "sales.named")
    second.glue.create_table(
        DatabaseName="sales", TableInput={key: left[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    )


def append(client: RenamingGlue, name: str) -> int | None:
    """Commit a row; the snapshot that makes."""
    table = client.load_table(name)
    if not table.schema().fields:
        with table.update_schema() as changed:
            changed.add_column("n", LongType())
    table.append(pa.table({"n": [1]}))
    return table.metadata.current_snapshot_id


def test_a_table_that_was_committed_to_since_is_known_by_its_identity(glue: Clients) -> None:
    """Its former entry was left behind by one that died, and is of an older state."""
    first, second = glue
    append(first, "sales.draft")
    left_by_both_names(first, second)
    latest = append(second, "sales.named")
    with pytest.raises(NoSuchTableError, match="is called named now"):
        second.rename_table("sales.draft", "sales.discarded")
    assert names(second) == ["named"]
    assert second.load_table("sales.named").metadata.current_snapshot_id == latest


def test_a_table_whose_earlier_snapshots_others_expired_is_known_by_its_earlier_states(glue: Clients) -> None:
    first, second = glue
    former = append(first, "sales.draft")
    left_by_both_names(first, second)
    append(second, "sales.named")
    assert former is not None
    second.load_table("sales.named").maintenance.expire_snapshots().by_id(former).commit()
    second.rename_table("sales.draft", "sales.named")
    assert names(second) == ["named"]


def test_rows_that_were_committed_by_the_former_name_stay(glue: Clients) -> None:
    """One died between the last two calls, and whoever knew the former name alone went on writing by that."""
    first, second = glue
    append(first, "sales.draft")
    left_by_both_names(first, second)
    latest = append(second, "sales.draft")
    second.rename_table("sales.draft", "sales.named")
    assert names(second) == ["named"]
    assert second.load_table("sales.named").metadata.current_snapshot_id == latest


def test_of_a_table_that_was_committed_to_by_both_names_nothing_goes(glue: Clients) -> None:
    first, second = glue
    append(first, "sales.draft")
    left_by_both_names(first, second)
    append(second, "sales.draft")
    append(second, "sales.named")
    with pytest.raises(CommitFailedException, match=r"sales.draft and sales.named are one table, and others wrote by both names"):
        second.rename_table("sales.draft", "sales.named")
    assert names(second) == ["draft", "named"]


def test_a_table_of_others_that_goes_just_as_it_is_looked_at_is_in_nobodys_way(
    glue: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decided is done, and nobody is told that the draft is gone."""
    first, second = glue
    first.before_moving = lambda: second.create_table("sales.named", Schema())
    look, dropped = first._get_glue_table, list[str]()

    def dropped_just_now(database_name: str, table_name: str) -> Any:
        if table_name == "named" and not dropped:
            dropped.append(table_name)
            second.drop_table("sales.named")
        return look(database_name, table_name)

    monkeypatch.setattr(first, "_get_glue_table", dropped_just_now)
    first.rename_table("sales.draft", "sales.named")
    monkeypatch.undo()
    assert names(first) == ["named"]
