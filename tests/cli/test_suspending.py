"""``suspend`` and ``resume`` print the states before and after; ``drop`` needs a confirmation, and names what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("numbers")


def test_a_table_is_suspended_and_resumed(dynamic_tables: Run) -> None:
    unknown = dynamic_tables("suspend", "numbers")
    assert (unknown.code, "numbers" in unknown.err) == (1, True)
    assert dynamic_tables("refresh", "numbers").code == 0

    suspended = dynamic_tables("suspend", "numbers", "-o", "json")
    change = json.loads(suspended.out)
    assert (change["identifier"], change["before"], change["after"]) == ("lake.sales.numbers", "RUNNING", "SUSPENDED")
    assert "is suspended; resume it to refresh again" in dynamic_tables("refresh", "numbers").err
    assert dynamic_tables("suspend", "numbers", "--reason", "it moves").code == 0
    assert "is suspended (it moves)" in dynamic_tables("refresh", "numbers").err
    assert json.loads(dynamic_tables("list", "-o", "json").out)[0]["suspended_because"] == "it moves"
    forced = dynamic_tables("refresh", "numbers", "--force", "--full-refresh", "-o", "json")
    assert json.loads(forced.out)["version"] == 2
    assert "suspended" in dynamic_tables("show", "numbers").out

    resumed = dynamic_tables("resume", "numbers", "-o", "json")
    change = json.loads(resumed.out)
    assert (change["before"], change["after"], change["reason"]) == ("SUSPENDED", "RUNNING", "")


def test_why_late_names_the_first_table_that_stopped_and_who_must_act(dynamic_tables: Run, numbers: Path) -> None:
    numbers.write_text(
        numbers.read_text().replace(
            "}]", "}, {name: lake.sales.sums, freshness: 1 hour, query: SELECT sum(x) AS x FROM lake.sales.numbers}]"
        )
    )
    never = json.loads(dynamic_tables("why", "sums", "--late", "-o", "json").out)
    assert (never["stopped"], never["cause"]) == ("lake.sales.numbers", "NO_VERSION")
    assert never["path"] == ["lake.sales.numbers", "lake.sales.sums"]
    assert dynamic_tables("refresh", "numbers").code == 0
    fine = dynamic_tables("why", "numbers", "--late")
    assert (fine.code, fine.out) == (0, "")
    assert fine.err == "lake.sales.numbers is not late, and no refresh of it has stopped.\n"
    assert dynamic_tables("suspend", "numbers", "--reason", "it moves").code == 0
    shown = dynamic_tables("why", "sums", "--late").out
    assert "it moves" in shown
    assert "A user resumes lake.sales.numbers." in shown
    assert dynamic_tables("why", "sums", "ds=2024-01-01", "--late").code == 2


def test_a_table_is_renamed_and_dropped(dynamic_tables: Run) -> None:
    assert dynamic_tables("refresh", "numbers").code == 0
    renamed = dynamic_tables("rename", "numbers", "others", "-o", "json")
    assert json.loads(renamed.out) == {"before": "lake.sales.numbers", "after": "lake.sales.others"}
    assert "The definitions still say lake.sales.numbers" in renamed.err
    assert dynamic_tables("rename", "numbers", "lake.other.numbers").code == 1
    assert dynamic_tables("drop", "lake.sales.others", "--if-exists").code == 2
    assert dynamic_tables("drop", "lake.sales.others", "--yes").code == 0
    assert dynamic_tables("drop", "lake.sales.others", "--yes").code == 1
    for yes in ((), ("--yes",)):
        gone = dynamic_tables("drop", "lake.sales.others", "--if-exists", *yes)
        assert (gone.code, gone.err) == (0, "There is no lake.sales.others; nothing to do.\n")


def test_a_table_is_dropped_when_somebody_says_yes(dynamic_tables: Run) -> None:
    assert dynamic_tables("refresh", "numbers").code == 0

    asked = dynamic_tables("drop", "numbers")
    assert (asked.code, asked.out) == (2, "")
    assert asked.err == "lake.sales.numbers would be dropped with all its versions; say --yes to do it.\n"
    assert dynamic_tables("show", "numbers").code == 0

    mistyped = dynamic_tables("drop", "lake.sales.number", "--yes")
    assert (mistyped.code, "Did you mean 'lake.sales.numbers'?" in mistyped.err) == (1, True)

    dropped = dynamic_tables("drop", "numbers", "--yes", "-o", "json")
    assert dropped.code == 0
    told = json.loads(dropped.out)
    assert (told["identifier"], told["is_still_read"]) == ("lake.sales.numbers", False)
    assert "If the table is still defined, its next refresh will recreate it." in dropped.err
    assert f"The maintenance leaves the files in {told['location']} alone" in dropped.err
    assert Path(told["location"].removeprefix("file://")).is_dir()
    assert dynamic_tables("show", "numbers").code == 1
    again = dynamic_tables("drop", "numbers", "--yes")
    assert again.code == 1
    assert "numbers" in again.err
