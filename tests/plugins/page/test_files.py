"""The files of the page: small, complete, and without anything that runs text from the server."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from airflow_dynamic_tables.plugins.page.files import FOLDER

OWN = sorted(path for path in FOLDER.iterdir() if path.is_file())
VENDORED = FOLDER / "vendor"
LARGEST = 1_500_000


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= LARGEST


def test_what_others_wrote_is_as_they_published_it() -> None:
    record = json.loads((VENDORED / "vendored.json").read_text())
    files = {path.name for path in VENDORED.iterdir()} - {"vendored.json"}
    assert files == {name for library in record for name in library["files"]}
    for library in record:
        assert library["version"]
        assert any(name.endswith("LICENSE") for name in library["files"])
        for name, digest in library["files"].items():
            assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_text_from_the_server_never_becomes_code_or_markup(path: Path) -> None:
    text = path.read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:|DOMParser"
    assert re.findall(forbidden, text) == []
    if path.suffix == ".html":
        assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text) == [], "the policy forbids inline code"


def test_every_file_that_is_named_exists() -> None:
    for path in OWN:
        named = (
            re.findall(r'(?:src|href)="([^"#?]+)"|from "\./([^"]+)"', path.read_text()) if path.suffix in (".html", ".js") else []
        )
        for name in (one or other for one, other in named):
            assert (FOLDER / name).is_file(), (path.name, name)
