"""Files that would take the time, the memory or the process of all others: each is told at a place, and the others are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.file import read_entries
from airflow_dynamic_tables.core.limits import FILE_BYTES, MESSAGE_CHARACTERS, MISTAKES_PER_FILE
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.queries import dialect
from airflow_dynamic_tables.exceptions import DefinitionError

FINE = "dynamic_tables:\n  - {name: fine, freshness: 1 day, query: SELECT 1 AS x}\n"


def _table(query: str, **keys: str) -> str:
    others = "".join(f"    {key}: {value}\n" for key, value in keys.items())
    return f"dynamic_tables:\n  - name: t\n    freshness: 1 day\n{others}    query: |\n      {query}\n"


def _listed(number: int, text: Callable[[int], str], between: str = ", ") -> str:
    return between.join(map(text, range(number)))


BOMBS: Mapping[str, Callable[[], tuple[str, str]]] = {
    "levels of lists": lambda: ("? a\n: " + "- " * 30_000 + "x", "2:101: is nested more than 50 levels deep"),
    "levels behind two marks of byte order": lambda: (
        "\ufeff\ufeff" + "- " * 30_000,
        "1:101: is nested more than 50 levels deep",
    ),
    "merges of merges": lambda: (
        "a: &a0 {}\n" + "".join(f"b{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
        "1:1: unknown key 'a'; legal are defaults, sources, views, dynamic_tables",
    ),
    "a long merge again and again": lambda: (
        f"a: &a {{x: 1}}\nb: &b [{', '.join(['*a'] * 30_000)}]\n" + _listed(1_000, lambda number: f"c{number}: {{<<: *b}}", "\n"),
        "merges more than 200,000 keys",
    ),
    "a merge into itself": lambda: ("a: &a {<<: *a}", "1:4: merges a mapping into itself"),
    "values": lambda: (f"[{'a,' * 300_000}]", "1:400000: has more than 200,000 values; split it"),
    "bytes": lambda: ("# " + "x" * FILE_BYTES, "1:1: has more than 1,000,000 bytes; split it into several files"),
    "unknown keys": lambda: (
        "".join(f"key{number}: 1\n" for number in range(20_000)),
        f"{MISTAKES_PER_FILE}:2: there are more than these {MISTAKES_PER_FILE} mistakes",
    ),
    "wrong options": lambda: (
        _table("SELECT 1 AS a", options=f"{{{_listed(20_000, lambda number: f'o{number}: []')}}}"),
        f"there are more than these {MISTAKES_PER_FILE} mistakes",
    ),
    "keys without a value": lambda: (
        _table("SELECT 1 AS a").replace("freshness: 1 day", "\n".join(f"    x{number}:" for number in range(40_000)).strip()),
        "3:8: 'x0' has no value; give one or remove the key",
    ),
    "a long message": lambda: (_table("SELECT 1 AS a", refresh_mode="x" * 900_000), "4:19: 'xxx"),
    "unknown tables": lambda: (
        _table(f"SELECT 1 AS a FROM {_listed(900, lambda number: f't{number}')}"),
        "5:26: unknown table 't0'; declare it under sources, views or dynamic_tables",
    ),
    "tables": lambda: (
        _table(f"SELECT 1 AS a FROM {_listed(20_000, lambda number: f't{number}')}"),
        "the query names more than 1,000 tables; make views or dynamic tables of parts of it",
    ),
    "common table expressions": lambda: (
        _table(f"WITH {_listed(9_000, lambda number: f'a{number} AS (SELECT 1)')} SELECT a FROM a9000"),
        "unknown table 'a9000'; declare it under sources, views or dynamic_tables",
    ),
    "qualified columns": lambda: (
        _table(f"SELECT {_listed(12_000, lambda _: 'd.t.c')} FROM {_listed(900, lambda _: 'd.t')}"),
        "unknown table 'd.t'; declare it under sources, views or dynamic_tables",
    ),
    "numbers in a list": lambda: (
        _table(f"SELECT 1 IN ({_listed(120_000, str)}) AS a"),
        "5:200007: the query has more than 200,000 characters; make views or dynamic tables of parts of it",
    ),
    "views that double": lambda: (
        "views:\n- {name: v0, query: SELECT 1 AS a}\n"
        + "".join(f"- {{name: v{n}, query: SELECT a FROM v{n - 1} UNION ALL SELECT a FROM v{n - 1}}}\n" for n in range(1, 31)),
        "14:64: the query has more than 200,000 characters with its views written out; make a dynamic table of one",
    ),
    "views that read views": lambda: (
        "views:\n- {name: v0, query: SELECT 1 AS a}\n"
        + "".join(f"- {{name: v{n}, query: SELECT a FROM v{n - 1}}}\n" for n in range(1, 1_000)),
        "23:36: views read views here, more than 20 deep; make a dynamic table of one of them",
    ),
    "views that read views, the last one first": lambda: (
        "views:\n" + "".join(f"- {{name: v{n}, query: SELECT a FROM v{n - 1}}}\n" for n in range(1_000, 0, -1)),
        "102:37: views read views here, more than 20 deep",
    ),
    "joins without a condition": lambda: (
        _table("SELECT o.a FROM o " + _listed(900, lambda number: f"JOIN d{number}", " ") + " WHERE o.a = d0.a"),
        "unknown table 'd0'; declare it under sources, views or dynamic_tables",
    ),
    "circles": lambda: (
        "dynamic_tables:\n" + "".join(f"- {{name: t{n}, freshness: 1 day, query: SELECT a FROM t{n}}}\n" for n in range(4_000)),
        "12:10: 3990 more tables read each other in circles, or read tables that do",
    ),
}


_PROGRAM = """
import json, os, resource, sys
from pathlib import Path
from airflow_dynamic_tables.definitions import reading
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.queries import parsing

for folder in sorted(Path().iterdir()):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        resource.setrlimit(resource.RLIMIT_AS, (500_000_000, 500_000_000))
        definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
        print(json.dumps([folder.name, "fine" in [name.table for name in definitions.tables], *map(str, mistakes)]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(json.dumps([folder.name, False, "died"]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is told of each bomb. Each is read in a process of its own, with twenty seconds of a processor and 500 MB."""
    top = tmp_path_factory.mktemp("bombs")
    for name, make in BOMBS.items():
        (top / name).mkdir()
        (top / name / "bomb.yaml").write_text(make()[0], encoding="utf-8")
        (top / name / "fine.yaml").write_text(FINE)
    run = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=top, capture_output=True, text=True, check=True)
    print(run.stderr)
    return {name: lines for name, *lines in map(json.loads, run.stdout.splitlines())}


@pytest.mark.large
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_mistake_at_its_place(name: str, told: dict[str, list[str]]) -> None:
    expected = BOMBS[name]()[1]
    fine, *mistakes = told[name]
    assert fine, mistakes
    assert 1 <= len(mistakes) <= MISTAKES_PER_FILE + 1
    assert [mistake for mistake in mistakes if expected in mistake], mistakes[:5]
    assert max(map(len, mistakes)) <= MESSAGE_CHARACTERS + 100
    assert not [mistake for mistake in mistakes if "cannot be understood" in mistake]


@pytest.mark.parametrize("text", ["? a\n: " + "- " * 30_000, "a: &a {<<: *a}", f"[{'a,' * 300_000}]", "a: \u2028b", "a: b\rc: d"])
def test_a_bomb_of_catalogs_is_a_mistake_at_its_place(text: str, tmp_path: Path) -> None:
    (tmp_path / "catalogs.yaml").write_bytes(text.encode())
    with pytest.raises(DefinitionError, match=r"catalogs\.yaml:[12]:\d+: "):
        read_entries(tmp_path / "catalogs.yaml")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a: b\rc: d\r", "bad.yaml:1:5: has a carriage return that is no line end; save the file with the line ends LF or CRLF"),
        (
            "a: b\x85c: d",
            "bad.yaml:1:5: has U+0085, which ends a line in YAML; remove it, or write it as an escape in double quotes",
        ),
        (
            "a:\n  b\u2028",
            "bad.yaml:2:4: has U+2028, which ends a line in YAML; remove it, or write it as an escape in double quotes",
        ),
        (_table('"a\\0b"').replace("query: |\n", "query_file:"), "bad.yaml:4:22: 'a\\x00b' can be no file: embedded null byte"),
        (_table("x" * 300).replace("query: |\n", "query_file:"), "can be no file: File name too long"),
        (_table("SELECT /*+ BROADCAST('x) */ 1 AS a"), "bad.yaml:5:"),
    ],
)
def test_what_once_hid_every_table_is_a_mistake_at_its_place(text: str, mistake: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(text.encode())
    _read_beside_it(tmp_path, mistake)


def test_a_query_that_takes_too_long_to_parse_is_a_mistake_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "STEPS_OF_SHORT_TEXTS", 10)
    monkeypatch.setattr(dialect, "STEPS_PER_TOKEN", 1)
    (tmp_path / "bad.yaml").write_text(_table("SELECT t.* FROM (SELECT t.* FROM t) AS t"))
    _read_beside_it(tmp_path, "the query takes too long to parse; simplify it here, or split it into views")


def _read_beside_it(folder: Path, mistake: str) -> None:
    (folder / "fine.yaml").write_text(FINE)
    definitions, mistakes = load_sound_definitions(folder, cache=Cache(None))
    assert [name.table for name in definitions.tables] == ["fine"]
    assert len(mistakes) == 1
    assert mistake in str(mistakes[0])
    assert "cannot be understood" not in str(mistakes[0])


def _link_to_itself(folder: Path) -> None:
    (folder / "bad.yaml").symlink_to("bad.yaml")


def _link_to_the_folder_above(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "loop").symlink_to(folder)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "bad.yaml")


def _device(folder: Path) -> None:
    (folder / "bad.yaml").symlink_to("/dev/zero")


def _link_to_nothing(folder: Path) -> None:
    (folder / "bad.yaml").symlink_to("nothing")


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (_link_to_itself, "bad.yaml:1:1: cannot be read: Too many levels of symbolic links"),
        (_link_to_the_folder_above, "below/loop:1:1: is a link to a folder that it lies in; remove the link"),
        (_pipe, "bad.yaml:1:1: cannot be read: it is no file of text"),
        (_device, "bad.yaml:1:1: cannot be read: it is no file of text"),
        (_link_to_nothing, "bad.yaml:1:1: cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_file_hides_none(make: Callable[[Path], None], mistake: str, tmp_path: Path) -> None:
    make(tmp_path)
    _read_beside_it(tmp_path, mistake)


def test_an_unreadable_folder_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "fine.yaml").write_text(FINE)
    program = (
        "import os, sys\n"
        "from airflow_dynamic_tables.definitions.cache import Cache\n"
        "from airflow_dynamic_tables.definitions.loader import load_sound_definitions\n"
        "from pathlib import Path\n"
        # Who is nobody may not be allowed to read the libraries.
        "load_sound_definitions(Path('fine.yaml'), cache=Cache(None))\n"
        "os.getuid() == 0 and os.setuid(65534)\n"
        "definitions, mistakes = load_sound_definitions(Path(), cache=Cache(None))\n"
        "print(len(definitions.tables), *mistakes)"
    )
    tmp_path.chmod(0o755)
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout == "1 closed:1:1: cannot be read: Permission denied\n"


def test_what_nobody_thought_of_is_a_mistake_of_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_query: str) -> None:
        raise ZeroDivisionError("of the test")

    (tmp_path / "sources.yaml").write_text("sources:\n- {name: a, format: parquet, path: /a}\n")
    (tmp_path / "x.yaml").write_text(FINE)
    cache = Cache(None)
    monkeypatch.setattr(cache, "analyse", fails)
    definitions, mistakes = load_sound_definitions(tmp_path, cache=cache)
    assert len(definitions.sources) == 1
    assert list(map(str, mistakes)) == [f"{tmp_path}/x.yaml:2:5: cannot be understood: ZeroDivisionError: of the test"]


def test_a_message_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text('"a\\nb\\u202e\\u2028c": 1\n' + FINE)
    _, mistakes = load_sound_definitions(tmp_path, cache=Cache(None))
    assert [mistake.message.partition(";")[0] for mistake in mistakes] == [r"unknown key 'a\nb\u202e\u2028c'"]
