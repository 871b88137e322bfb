"""An entry is put where there is none, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Barrier, Thread

import pytest

from airflow_dynamic_tables.clients.delta.log import DeltaLog, put_if_absent
from airflow_dynamic_tables.exceptions import CommitRejectedError, UnsupportedError


def test_of_many_who_put_the_same_entry_one_does(tmp_path: Path) -> None:
    log, all_ready, winners = DeltaLog(f"file://{tmp_path}"), Barrier(8), list[int]()

    def put(number: int) -> None:
        all_ready.wait()
        if log.put(0, [{"commitInfo": {"number": number}}]):
            winners.append(number)

    threads = [Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert log.info(0) == {"number": winners[0]}
    assert [file.name for file in (tmp_path / "_delta_log").iterdir()] == ["00000000000000000000.json"]


def test_a_folder_that_may_not_be_written_to_is_surely_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(_: str, target: str) -> None:
        raise OSError(95, "Operation not supported", target)

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(CommitRejectedError, match=r"nothing was committed: .*not supported.*check that the folder"):
        put_if_absent(f"file://{tmp_path}/log/1", b"x")
    assert list((tmp_path / "log").iterdir()) == []


def test_a_link_whose_answer_a_file_server_lost_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def lost(source: str, target: str) -> None:
        link(source, target)
        raise FileExistsError(17, "File exists", target)

    monkeypatch.setattr(os, "link", lost)
    assert put_if_absent(f"file://{tmp_path}/log/1", b"x")


def test_the_name_of_an_entry_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was synced is lost all the same with the name that nobody synced."""
    synced: list[str] = []
    sync = os.fsync

    def seen(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    assert put_if_absent(f"file://{tmp_path}/t/_delta_log/1", b"x")
    assert synced[1:] == [f"{tmp_path}/t/_delta_log", f"{tmp_path}/t"]


def test_a_disk_that_keeps_no_names_of_folders_has_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody reads it by then."""
    sync = os.fsync

    def only_files(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").is_dir():
            raise OSError(22, "Invalid argument")
        sync(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    assert put_if_absent(f"file://{tmp_path}/log/1", b"x")


def test_a_store_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="committed on a local disk, in S3, Google Cloud Storage, Azure or HDFS; of memory it is not known"
    ):
        put_if_absent("memory://lake/t/_delta_log/1", b"x")
