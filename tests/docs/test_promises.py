"""Every promise, and every fault of the page on promises, names the tests that keep it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"
TEXT = PAGE.read_text()

_LINK = re.compile(r"\]\((\.\./tests/[^)#]+)\)")
_IS_TEST = re.compile(r"^\s*(?:async )?def test_", re.MULTILINE)
_ELSEWHERE = "see below"
"""A row of the table of faults that a section of its own describes."""


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


PROMISES = re.findall(r"^\* (\*\*.*?)(?=^\* \*\*|\Z)", section("The promises"), re.MULTILINE | re.DOTALL)
FAULTS = [row for row in section("The faults").splitlines() if row.startswith("| ") and "| shown by |" not in row]


@pytest.mark.parametrize("stated", [*PROMISES, *FAULTS], ids=lambda text: text.strip("*| ")[:50])
def test_it_names_its_tests(stated: str) -> None:
    links = _LINK.findall(stated)
    assert links or _ELSEWHERE in stated, "it names no test: link the file that keeps it"
    for link in links:
        path = (PAGE.parent / link).resolve()
        files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        assert any(_IS_TEST.search(file.read_text()) for file in files), f"{link} has no test"


def test_the_page_was_read_to_its_end() -> None:
    assert len(PROMISES) == section("The promises").count("\n* **") > 50
    assert len(FAULTS) > 80
