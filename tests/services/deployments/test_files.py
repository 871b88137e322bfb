"""Files of definitions are written by one at a time, whole, and never over what somebody else wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_dynamic_tables.exceptions import ConfigurationError, ConflictError
from airflow_dynamic_tables.services.deployments.files import FileChange, only_writer, read, write


def test_a_file_is_made_changed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "orders.sql"
    with only_writer(tmp_path):
        write(FileChange(file, None, b"old"))
        file.chmod(0o640)
        write(FileChange(file, b"old", b"new"))
        assert (read(file), file.stat().st_mode & 0o777) == (b"new", 0o640)
        write(FileChange(file, b"new", None))
    assert read(file) is None


@pytest.mark.parametrize("before", [None, b"what was read"])
def test_what_somebody_else_wrote_meanwhile_stays(tmp_path: Path, before: bytes | None) -> None:
    file = tmp_path / "orders.sql"
    file.write_bytes(b"by hand")
    with only_writer(tmp_path), pytest.raises(ConflictError, match=r"Another process changed .*/orders\.sql meanwhile"):
        write(FileChange(file, before, b"new"))
    assert file.read_bytes() == b"by hand"


def test_a_writer_waits_for_another_and_is_told_when_that_takes_long(tmp_path: Path) -> None:
    with (
        only_writer(tmp_path),
        pytest.raises(ConflictError, match="Another process has been writing into"),
        only_writer(tmp_path, 0.1),
    ):
        pytest.fail("two writers")
    with only_writer(tmp_path, 0.1):
        pass


def test_what_a_dead_writer_left_is_no_definition_and_goes_with_the_next(tmp_path: Path) -> None:
    half = tmp_path / ".statements-abc"
    half.write_text("CREATE DYNA")
    with only_writer(tmp_path):
        assert not half.exists()


def test_a_link_is_not_written_over(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.write_text("x")
    (tmp_path / "orders.sql").symlink_to(other)
    with only_writer(tmp_path), pytest.raises(ConfigurationError, match="is a link"):
        write(FileChange(tmp_path / "orders.sql", b"x", b"y"))


def test_a_folder_that_nobody_may_write_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="change them there"), only_writer(tmp_path / "missing"):
        pytest.fail("written into nothing")


WRITER = """
import os, signal, sys
from pathlib import Path
from airflow_dynamic_tables.services.deployments import files

calls = 0

def deadly(function):
    def called(*arguments, **named):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return called

os.fsync, os.replace, os.fchmod = map(deadly, (os.fsync, os.replace, os.fchmod))
file = Path(sys.argv[1])
with files.only_writer(file.parent):
    files.write(files.FileChange(file, b"old " * 1000, b"new " * 1000))
"""
"""Dies before the call of that number of those that a change is made of."""


def test_a_writer_that_is_killed_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    file = tmp_path / "orders.sql"
    whole: list[str] = []
    for step in range(1, 10):
        file.write_bytes(b"old " * 1000)
        died = subprocess.run([sys.executable, "-c", WRITER, str(file), str(step)], check=False, env=os.environ)
        whole.append(file.read_text())
        with only_writer(tmp_path, 1):
            assert {path.name for path in tmp_path.iterdir()} == {"orders.sql", ".statements.lock"}
        if died.returncode != -signal.SIGKILL:
            break
    else:
        pytest.fail("there are more steps than were tried")
    assert set(whole) == {"old " * 1000, "new " * 1000}
    assert whole == sorted(whole, reverse=True)
