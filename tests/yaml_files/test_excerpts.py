"""An entry is shown as somebody wrote it, with its comments, and no secret of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.yaml_files.parsing import parse_document

FILE = """\
# yaml-language-server: $schema=schema.json

dynamic_tables:
  # Of the shops, not of the web.
  # Ask sales.
  - name: daily  # by day
    query: |
      SELECT 1 AS x  -- one

      # no comment of YAML

    # the end of daily

  # Of the web.
  - {name: web, query: SELECT 2 AS x}  # two

  -
    name: late
    tags: [a,
           b]
sources: []
"""

DAILY = """\
# Of the shops, not of the web.
# Ask sales.
- name: daily  # by day
  query: |
    SELECT 1 AS x  -- one

    # no comment of YAML

  # the end of daily"""


def excerpt(text: str, number: int = 0) -> str:
    document, mistakes = parse_document(Path("tables.yaml"), text, "")
    assert document is not None
    assert not mistakes
    return document.excerpt(("dynamic_tables", number))


def test_an_entry_has_its_comments_and_no_others() -> None:
    assert excerpt(FILE) == DAILY
    assert excerpt(FILE, 1) == "# Of the web.\n- {name: web, query: SELECT 2 AS x}  # two"
    assert excerpt(FILE, 2) == "name: late\ntags: [a,\n       b]"


@pytest.mark.parametrize("text", ["dynamic_tables: [{name: é, x: 1}, {name: b}]", "dynamic_tables: [\n{name: é, x: 1}\n]"])
def test_an_entry_within_a_line(text: str) -> None:
    assert excerpt(text) == "{name: é, x: 1}"


def test_a_list_without_indentation() -> None:
    text = "dynamic_tables:\n# of a\n- name: a\n  # still a\n# of b\n- name: b\n"
    assert excerpt(text) == "# of a\n- name: a\n  # still a"
    assert excerpt(text, 1) == "# of b\n- name: b"


SECRETS = {
    "fs.s3a.secret.key: S3CR3T": "fs.s3a.secret.key: ***",
    "'x.password': 'S3CR3T ''S3CR3T'  # of x": "'x.password': ***  # of x",
    "{password: S3CR3T, name: a}": "{password: ***, name: a}",
    "password: |\n    S3CR3T\n    S3CR3T\n  # of x": "password: ***\n  # of x",
    "password: >-\n\n    S3CR3T": "password: ***",
    "password: S3CR3T\n    S3CR3T\n  next: 1": "password: ***\n  next: 1",
    "credentials: [S3CR3T, {user: S3CR3T}]": "credentials: [***, {user: ***}]",
    "plain: &a S3CR3T\n  password: *a": "plain: ***\n  password: ***",
    "? password\n  : S3CR3T": "? password\n  : ***",
    "x: 1  # password: S3CR3T S3CR3T": "x: 1  # password: ***",
    "x: 1\n  # fs.s3a.secret.key: S3CR3T": "x: 1\n  # fs.s3a.secret.key: ***",
    "url: https://me:S3CR3T@host/": "url: https://me:***@host/",
    "args: --conf a.password=S3CR3T": "args: --conf a.password=***",
}


@pytest.mark.parametrize("written", SECRETS)
def test_secrets_are_hidden(written: str) -> None:
    assert excerpt(f"dynamic_tables:\n- {written}\n") == f"- {SECRETS[written]}"


def test_what_stands_elsewhere_in_the_file_hides_nothing_here() -> None:
    text = "defaults: {password: &p S3CR3T}\ndynamic_tables:\n- &a\n  name: a\n  password: *p\n- <<: *a\n  name: b\n"
    assert excerpt(text) == "- &a\n  name: a\n  password: ***"
    assert excerpt(text, 1) == "- <<: *a\n  name: b"
