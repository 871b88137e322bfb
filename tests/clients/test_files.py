"""Listings and small files, on a local disk as on any other file system of fsspec."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pytest
import s3fs
from fsspec.implementations.local import LocalFileSystem

from airflow_dynamic_tables.clients.files import (
    create_text,
    delete_entries,
    delete_folder,
    exists,
    is_settled,
    list_entries,
    list_files,
    move_folder,
    read_text,
    write_text,
)
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConfigurationError, MissingExtraError
from tests.support.object_store import BUCKET, running_bucket
from tests.support.processes import as_nobody


@pytest.mark.parametrize("scheme", ["file://", ""])
def test_text_comes_back_and_folders_are_made(tmp_path: Path, scheme: str) -> None:
    uri = f"{scheme}{tmp_path}/stage/one/_plan.json"
    write_text(uri, "Grüße\n")
    assert read_text(uri) == "Grüße\n"


def test_text_on_another_file_system() -> None:
    write_text("memory://stage/_plan.json", "{}")
    assert read_text("memory://stage/_plan.json") == "{}"


def test_only_data_files_are_listed_with_their_full_address(tmp_path: Path) -> None:
    for name in (
        "ds=2024-01-01/a.parquet",
        "_ds=x/b.parquet",
        "_SUCCESS",
        "f.parquet._COPYING_",
        ".c.crc",
        "_temporary/0/d.parquet",
        "ds=a b%2F/e.parquet",
    ):
        file = tmp_path / "orders" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    base = f"file://{tmp_path}/orders"
    assert sorted(list_files(base)) == sorted(
        [f"{base}/ds=2024-01-01/a.parquet", f"{base}/_ds=x/b.parquet", f"{base}/ds=a b%2F/e.parquet"]
    )


def test_a_hidden_parent_folder_does_not_hide_the_data(tmp_path: Path) -> None:
    file = tmp_path / ".demo" / "_data" / "a.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("x")
    assert list(list_files(str(file.parent))) == [file.as_uri()]


def test_a_single_file_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x")
    assert list(list_files(str(file))) == [file.as_uri()]


def test_the_extra_of_a_store_whose_client_is_not_installed_is_named() -> None:
    code = """
import sys
for library in ("s3fs", "gcsfs", "adlfs", "hdfs_native"):
    sys.modules[library] = None  # as if it were not installed
from airflow_dynamic_tables.clients.files import read_text
from airflow_dynamic_tables.exceptions import MissingExtraError
for uri in sys.argv[1:]:
    try:
        read_text(uri)
    except MissingExtraError as error:
        print(error)
"""
    extras = {
        "s3://lake/t": "s3",
        "s3a://lake/t": "s3",
        "gs://lake/t": "gcs",
        "abfss://lake@account.dfs.core.windows.net/t": "azure",
        "hdfs://lake:8020/t": "hdfs",
    }
    read = subprocess.run([sys.executable, "-c", code, *extras], capture_output=True, text=True, check=True)
    assert read.stdout.splitlines() == [str(MissingExtraError(extra)) for extra in extras.values()]


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_files(str(tmp_path / "nothing"))


@pytest.fixture
def orders() -> Iterator[Path]:
    """A folder of two partitions that everybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for day in ("1", "2"):
            file = Path(folder, f"ds={day}", "a.csv")
            file.parent.mkdir()
            file.write_text("x")
        yield Path(folder)
        for each in (Path(folder), *Path(folder).iterdir()):
            each.chmod(0o755)


@pytest.mark.parametrize("look", [list_files, list_entries])
@pytest.mark.parametrize("closed", ["", "ds=2"])
def test_a_folder_that_may_not_be_listed_is_not_empty(orders: Path, look: Callable[[str], object], closed: str) -> None:
    (orders / closed).chmod(0)
    assert as_nobody(lambda: look(str(orders))) == f"{(orders / closed).as_posix()} cannot be listed: Permission denied."


def test_whether_it_exists_is_not_guessed(orders: Path) -> None:
    assert not exists(f"{orders}/ds=3")
    assert not exists(f"{orders}/ds=1/a.csv/b")
    (orders / "ds=1").chmod(0)
    assert str(as_nobody(lambda: exists(f"{orders}/ds=1/a.csv"))).endswith("cannot be listed: Permission denied.")


def test_a_folder_that_goes_while_it_is_listed_is_not_empty(orders: Path) -> None:
    class Vanishing(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
        """A disk of which a folder goes as soon as it was seen."""

        protocol = "vanishing"

        def ls(self, path: str, detail: bool = False, **kwargs: object) -> object:
            listed = super().ls(path, detail, **kwargs)
            (orders / "ds=2" / "a.csv").unlink(missing_ok=True)
            if (orders / "ds=2").exists():
                (orders / "ds=2").rmdir()
            return listed

    fsspec.register_implementation("vanishing", Vanishing, clobber=True)
    with pytest.raises(CatalogUnavailableError, match=r"ds=2 cannot be listed: No such file or directory"):
        list_files(f"vanishing://{orders}")


def test_what_others_delete_meanwhile_needs_no_tidying_up(orders: Path) -> None:
    (orders / "_temporary").mkdir(mode=0)
    assert as_nobody(lambda: len(list_files(str(orders)))) == 2, "a job that is writing has no data in its folder yet"
    assert list_entries(str(orders / "ds=3")) == []


def test_an_empty_folder_is_empty(orders: Path) -> None:
    (orders / "ds=3").mkdir()
    assert len(list_files(str(orders))) == 2
    assert list_files(str(orders / "ds=3")) == {}


def test_a_link_to_a_folder_is_a_folder(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "ds=3").symlink_to(orders / "ds=1")
    assert list(list_files(str(tmp_path))) == [f"file://{tmp_path}/ds=3/a.csv"]
    assert [entry.path for entry in list_entries(str(tmp_path))] == [f"{tmp_path}/ds=3"], "what is tidied up is the link"
    (tmp_path / "ds=4").symlink_to(tmp_path)
    with pytest.raises(CatalogUnavailableError, match=r"ds=4 cannot be listed: Too many levels of symbolic links"):
        list_files(str(tmp_path))


def test_an_object_store_that_refuses_to_list_is_not_empty() -> None:
    with running_bucket() as store:
        write_text(f"s3://{BUCKET}/orders/ds=1/a.csv", "x")
        s3fs.S3FileSystem().touch(f"{BUCKET}/orders/ds=2/")  # how consoles make a folder
        assert list(list_files(f"s3://{BUCKET}/orders")) == [f"s3://{BUCKET}/orders/ds=1/a.csv"]
        with pytest.raises(FileNotFoundError):
            list_files(f"s3://{BUCKET}/nothing")
        store.refuse("listing")
        for look in (list_files, list_entries):
            with pytest.raises(CatalogUnavailableError, match=f"{BUCKET}/orders cannot be listed: AccessDenied"):
                look(f"s3://{BUCKET}/orders")


def test_files_are_named_by_the_scheme_that_spark_knows() -> None:
    with running_bucket():
        write_text(f"s3://{BUCKET}/orders/ds=1 %2F/a.csv", "x")
        for scheme in ("s3", "s3a"):
            assert list(list_files(f"{scheme}://{BUCKET}/orders")) == [f"{scheme}://{BUCKET}/orders/ds=1 %2F/a.csv"]


@pytest.mark.large
def test_more_files_than_one_answer_of_an_object_store_lists() -> None:
    with running_bucket():
        folder = f"s3a://{BUCKET}/orders"
        objects = {f"{BUCKET}/orders/ds=1/{number:04d}": b"x" for number in range(1001)}
        s3fs.S3FileSystem().pipe(objects, batch_size=16)  # a busy server does not accept hundreds of connections in time
        assert len(list_files(folder)) == 1001
        assert len([entry for entry in list_entries(folder) if not entry.is_folder]) == 1001
        delete_folder(f"s3a://{BUCKET}", folder)
        assert list_entries(f"s3a://{BUCKET}") == []


def test_text_of_another_process_is_read_after_a_listing_without_it() -> None:
    with running_bucket():
        write_text(f"s3a://{BUCKET}/stage/_plan.json", "{}")
        write_text(f"s3a://{BUCKET}/stage/_progress.json", "1")
        list_entries(f"s3a://{BUCKET}/stage")
        other = s3fs.S3FileSystem(skip_instance_cache=True)
        other.pipe({f"{BUCKET}/stage/_result.json": b"{}", f"{BUCKET}/stage/_progress.json": b"1000"})
        assert read_text(f"s3a://{BUCKET}/stage/_result.json") == "{}"
        list_entries(f"s3a://{BUCKET}/stage")
        other.pipe(f"{BUCKET}/stage/_progress.json", b"2000000")
        assert read_text(f"s3a://{BUCKET}/stage/_progress.json") == "2000000"


def test_objects_that_mark_folders_go_with_their_folder() -> None:
    """As Hadoop's client writes them for each empty folder."""
    with running_bucket():
        system = s3fs.S3FileSystem()
        system.touch(f"{BUCKET}/orders/ds=1/")
        system.touch(f"{BUCKET}/orders/ds=1/_temporary/")
        system.touch(f"{BUCKET}/orders/ds=1/a.csv")
        entries = list_entries(f"s3a://{BUCKET}/orders")
        assert [(entry.path, entry.is_folder) for entry in entries] == [
            (f"{BUCKET}/orders/ds=1", True),
            (f"{BUCKET}/orders/ds=1/_temporary", True),
            (f"{BUCKET}/orders/ds=1/a.csv", False),
        ]
        assert delete_entries(f"s3a://{BUCKET}/orders", entries).files == 1
        system.invalidate_cache()
        assert system.find(BUCKET) == []


@pytest.mark.parametrize("may_list", [True, False])
def test_unfinished_uploads_of_a_folder_are_aborted_with_it(may_list: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_bucket():
        system = s3fs.S3FileSystem()
        for name in ("orders/stage/a", "orders/stage/b", "orders/stage2/c"):
            system.call_s3("create_multipart_upload", Bucket=BUCKET, Key=name)
        if not may_list:
            monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", _denied)
        delete_folder(f"s3a://{BUCKET}/orders", f"s3a://{BUCKET}/orders/stage")
        left = [upload["Key"] for upload in system.list_multipart_uploads(BUCKET)]
        assert left == (["orders/stage2/c"] if may_list else ["orders/stage/a", "orders/stage/b", "orders/stage2/c"])


def _denied(*_arguments: object, **_options: object) -> None:
    raise PermissionError("Access Denied")


def test_an_unknown_file_system_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="no file system for this address"):
        list_files("nosuch://bucket/key")


def test_of_a_new_file_for_which_there_is_no_room_nothing_is_left(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/versions/1.json"
    # On its own, because the limit holds for the whole process.
    program = f"""
import errno
from airflow_dynamic_tables.clients.files import create_text
from tests.support.disks import limit_files
limit_files(10)
try:
    create_text({uri!r}, "x" * 100)
except OSError as error:
    assert error.errno == errno.EFBIG, error
else:
    raise AssertionError("there was room")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert list((tmp_path / "versions").iterdir()) == []
    create_text(uri, "x")
    with pytest.raises(FileExistsError):
        create_text(uri, "y")
    assert read_text(uri) == "x"


NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("info", "settled"),
    [
        pytest.param({"mtime": NOW - timedelta(seconds=1.5)}, False, id="just written"),
        pytest.param({"mtime": NOW - timedelta(seconds=9.5)}, True, id="a while ago, by a fine clock"),
        pytest.param({"mtime": NOW - timedelta(seconds=60)}, False, id="this second, by a clock a minute behind"),
        pytest.param({"mtime": NOW - timedelta(minutes=6)}, True, id="long ago by any clock"),
        pytest.param(
            {"mtime": (NOW - timedelta(seconds=60)).timestamp(), "created": 1.5},
            True,
            id="a fine clock tells",
        ),
        pytest.param({"mtime": NOW + timedelta(seconds=60.5)}, False, id="the clock of the server is ahead"),
        pytest.param({"mtime": NOW, "ETag": "x"}, True, id="its tag tells its content"),
        pytest.param({"mtime": NOW - timedelta(days=1), "islink": True}, False, id="a link"),
        pytest.param({"size": 1}, False, id="nobody says when"),
    ],
)
def test_a_file_is_settled_once_no_change_can_hide(info: dict[str, object], settled: bool) -> None:
    assert is_settled(info, NOW) is settled


@pytest.mark.parametrize("scheme", ["file", "s3"])
def test_a_folder_is_moved_also_after_a_move_that_was_cut_short(tmp_path: Path, scheme: str) -> None:
    with running_bucket() if scheme == "s3" else nullcontext(None) as store:
        root = f"s3://{BUCKET}" if store else f"file://{tmp_path}"
        for name in ("a", "ds=1/b", "_versions/1"):
            write_text(f"{root}/old/{name}", name)
        move_folder(f"{root}/old", f"{root}/deep/new")
        write_text(f"{root}/old/ds=2/c", "c")  # what a kill left
        for _ in range(2):
            move_folder(f"{root}/old", f"{root}/deep/new")
        assert not exists(f"{root}/old")
        for name in ("a", "ds=1/b", "_versions/1"):
            assert read_text(f"{root}/deep/new/{name}") == name
        assert read_text(f"{root}/deep/new/ds=2/c") == "c"
