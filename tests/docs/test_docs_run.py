"""What the documentation tells a reader to type works: every page is played through, top to bottom, in a folder of its own.

YAML, SQL and Python blocks are files, named in their first line. Shell blocks are run; ``pip``, ``make``, ``airflow``, ``pytest``
and ``pre-commit`` are stood in for by programs that only check what they are told: targets exist, tests are found. Text blocks
are not run. ``dynamic-tables``, unless it starts Spark, and all that needs Airflow or pytest run in processes that have imported
it already.
"""

import os
import re
import runpy
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_dynamic_tables.cli.command_index import CommandGroup, all_commands
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from tests.support.iceberg_rest.server import IcebergRest
from tests.support.metastore import HiveMetastore
from tests.support.postgres import PostgresServer
from tests.support.warm_python import warm_python

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|--) (\S+)\n")
_CACHE = "DYNAMIC_TABLES_CACHE"
_NEEDS_AIRFLOW = re.compile(r"^from airflow", re.MULTILINE)
_WITH_AIRFLOW = "python-with-airflow"
_WARM = "dynamic-tables-warm"
_CHECKS = ("tests.docs.check_airflow", "tests.docs.check_pytest")  # what they import, nothing else here needs
_METASTORE = "thrift://metastore:9083"
_REST_CATALOG = "https://catalog.example.com"
_POSTGRES = "postgresql://etl@postgres:5432/shop"
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)

IN_BASE = {"README.md", "docs/guide.md", "docs/refreshes.md"}
"""The first pages of a reader. The others take long together, and their subjects have tests of their own."""

STAND_INS = {
    # What starts Spark is a process as users have it.
    "dynamic-tables": f"""case "$1" in
refresh|spark|test|serve) exec {{python}} -m airflow_dynamic_tables.cli.main "$@" ;;
*) exec {_WARM} "$@" ;;
esac""",
    "make": 'exec /usr/bin/env -S PATH="$REAL_PATH" make -n -C {root} "$@"',
    "pip": 'exec {python} {here}/check_pip.py {root} "$@"',
    "pre-commit": 'exec {python} {here}/check_pre_commit.py {root} "$@"',
}

COMMANDS_IMPORT = (
    "airflow_dynamic_tables.catalog.hive.catalog",
    "airflow_dynamic_tables.catalog.sql.catalog",
    *(f"airflow_dynamic_tables.cli.commands.{name}" for name in ("catalogs", "definitions", "deployments", "refresh", "tables")),
    "airflow_dynamic_tables.definitions.queries.parsing",
    "airflow_dynamic_tables.definitions.reading",
    "airflow_dynamic_tables.formats.hive.table",
    *(f"airflow_dynamic_tables.formats.iceberg.{name}" for name in ("stage", "table")),
    "pyiceberg.avro.decoder_fast",
    "rich.table",
)
"""What commands import as late as they may."""


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str

    def file(self, folder: Path) -> Path:
        named = _FILE.match(self.text)
        assert named, f"the first line must name the file:\n{self.text}"
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text)
        return path


def _blocks(page: Path) -> list[Block]:
    return [Block(*match.groups()) for match in _FENCE.finditer(page.read_text())]


def _needs_metastore(page: Path) -> bool:
    return _METASTORE in page.read_text()


def _needs_postgres(page: Path) -> bool:
    return _POSTGRES in page.read_text()


def _needs_spark(page: Path) -> bool:
    starts = ("dynamic-tables refresh", "dynamic-tables test", "dynamic-tables ctas")
    return any(block.language == "shell" and start in block.text for block in _blocks(page) for start in starts)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def warm_programs() -> Iterator[dict[str, str]]:
    """The texts of programs: one is what users call, two stand in, and one runs Python files that need Airflow."""
    with warm_python(*COMMANDS_IMPORT) as ours, warm_python("airflow_dynamic_tables.dag_factory", *_CHECKS) as airflows:
        yield {
            _WARM: ours.program("airflow_dynamic_tables.cli.main.main"),
            "airflow": airflows.program(f"{_CHECKS[0]}.check"),
            "pytest": airflows.program(f"{_CHECKS[1]}.check"),
            _WITH_AIRFLOW: airflows.program("tests.support.warm_python.run_file"),
        }


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The answers of Spark's parser to all queries, in the cache: every ``validate`` would start Java for its own."""
    spark = SparkParser.installed()
    if spark is None:
        return
    folder = tmp_path_factory.mktemp("parsed")
    with spark:
        for number, block in enumerate(block for page in PAGES for block in _blocks(page) if block.language == "yaml"):
            file = folder / f"{number}.yaml"
            file.write_text(block.text)
            load_sound_definitions(file, spark=spark)


@pytest.fixture
def environment(tmp_path: Path, warm_programs: dict[str, str], parsed: None) -> dict[str, str]:  # noqa: ARG001 - it must be there
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    here = Path(__file__).parent
    lines = {name: line.format(python=sys.executable, root=ROOT, here=here) for name, line in STAND_INS.items()}
    for name, text in {**{name: f"#!/bin/bash\n{line}\n" for name, line in lines.items()}, **warm_programs}.items():
        program = bin_ / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    kept = {name: value for name, value in os.environ.items() if name == _CACHE or not name.startswith("DYNAMIC_TABLES_")}
    return {
        **kept,
        "PATH": f"{bin_}:{kept['PATH']}",
        "REAL_PATH": kept["PATH"],
        "PYTHONPATH": str(ROOT),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "DYNAMIC_TABLES_VARIABLES": "LAKE,SHELVES_*,PARCELS_PREFIX",  # as the pages say
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # Spark starts in half the time
    }


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    return [
        *([pytest.mark.large] if _name(page) not in IN_BASE else []),
        *([pytest.mark.spark] if _needs_spark(page) else []),
        *([pytest.mark.metastore] if _needs_metastore(page) else []),
        *([pytest.mark.postgres] if _needs_postgres(page) else []),
    ]


@pytest.mark.parametrize("page", [pytest.param(page, id=_name(page), marks=_marks(page)) for page in PAGES])
def test_page_works_as_written(page: Path, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest) -> None:
    project = tmp_path / "project"
    project.mkdir()
    blocks = _blocks(page)
    if _needs_metastore(page):
        metastore: HiveMetastore = request.getfixturevalue("hive_metastore")
        blocks = [replace(block, text=block.text.replace(_METASTORE, metastore.uri)) for block in blocks]
    if page.name == "iceberg-catalogs.md":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        rest.empty()
        blocks = [replace(block, text=block.text.replace(_REST_CATALOG, rest.uri)) for block in blocks]
    if _needs_postgres(page):
        postgres: PostgresServer = request.getfixturevalue("postgres")
        request.getfixturevalue("postgres_driver")
        name = f"shop_{uuid4().hex[:8]}"
        theirs = {
            _POSTGRES: postgres.create_database(name),
            "database: shop\n": f"database: {name}\n",
            "shop.shop.": f"shop.{name}.",
        }
        for told, own in theirs.items():
            blocks = [replace(block, text=block.text.replace(told, own)) for block in blocks]
    for block in blocks:
        if block.language == "yaml":
            _check_yaml(block.file(project), project, environment)
        elif block.language == "python":
            file = block.file(project)
            compile(block.text, str(file), "exec")
            _run([_WITH_AIRFLOW if _NEEDS_AIRFLOW.search(block.text) else sys.executable, str(file)], project, environment)
        elif block.language == "sql":
            block.file(project)
        elif block.language == "shell":
            _run(["bash", "-euo", "pipefail", "-c", block.text], project, environment)
        else:
            assert block.language == "text", f"say what language this is:\n{block.text}"


def _check_yaml(file: Path, project: Path, environment: dict[str, str]) -> None:
    command = [str(Path(environment["PATH"].partition(":")[0]) / "dynamic-tables")]
    if file.name == "catalogs.yaml":
        _run([*command, "gc", "--catalogs", str(file)], project, environment)
    else:
        _run([*command, "validate", "--definitions", str(file)], project, environment)


def _run(command: list[str], project: Path, environment: dict[str, str]) -> None:
    ran = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command[-1]}\n{ran.stdout}\n{ran.stderr}"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub and the site give the headings of a page."""
    anchors: list[str] = []
    for heading in _HEADING.findall(_FENCE.sub("", page.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = sum(each == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", each) is not None for each in anchors)
        anchors.append(f"{anchor}-{again}" if again else anchor)
    return set(anchors)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(_FENCE.sub("", page.read_text()))
    targets = [(page.parent / file if file else page, anchor) for file, anchor in links]
    assert [(str(target), anchor) for target, anchor in targets if not target.exists()] == []
    headed = [(target, anchor) for target, anchor in targets if anchor and target.suffix == ".md"]
    assert [(str(target), anchor) for target, anchor in headed if anchor not in _anchors(target)] == []


def test_every_page_is_in_the_table_of_contents_once() -> None:
    docs = ROOT / "docs"
    listed = [entry for _, entries in runpy.run_path(str(docs / "conf.py"))["chapters"]() for entry in entries]
    pages = {page.relative_to(docs).with_suffix("").as_posix() for suffix in ("md", "rst") for page in docs.rglob(f"*.{suffix}")}
    assert sorted(listed) == sorted(pages - {"index"} - {page for page in pages if re.match(r"adr/\d", page)})


@pytest.mark.large
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--nitpicky"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    command = [*build, str(ROOT / "docs"), str(tmp_path / "site")]
    built = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (tmp_path / "site" / "llms.txt").read_text(), re.MULTILINE)
    assert [page for page in listed if not (tmp_path / "site" / page).is_file()] == []
    assert "load_dynamic_tables" in (tmp_path / "site" / "api.html").read_text()


def test_the_command_line_page_has_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    missing = []
    for command in all_commands():
        if isinstance(command, CommandGroup):
            lines = {f"{command.name} {inner.name}": inner for inner in command.commands}
        else:
            lines = {command.name: command}
        for line, entry in lines.items():
            missing += [] if f"dynamic-tables {line}" in text else [line]
            flags = (argument.flags[-1] for argument in entry.arguments if argument.flags[-1].startswith("--"))
            missing += [flag for flag in flags if flag not in text]
    assert missing == []


def test_the_readme_shows_and_runs_what_init_writes_and_prints(tmp_path: Path, environment: dict[str, str]) -> None:
    init = ["dynamic-tables", "init", "shop"]
    told = subprocess.run(init, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    printed = told.partition("Next:\n")[2].partition("\n\n")[0]
    blocks = _blocks(ROOT / "README.md")
    assert [line.strip() for line in printed.splitlines()] in [block.text.splitlines() for block in blocks]
    (declared,) = (block.text.partition("\n")[2] for block in blocks if block.language == "yaml")
    assert declared == (tmp_path / "shop" / "dags" / "definitions" / "sales.yaml").read_text()


def test_the_definitions_page_has_every_key() -> None:
    from airflow_dynamic_tables.definitions.declarations.file import definitions_schema

    text = (ROOT / "docs" / "definitions.md").read_text()
    keys = {key for model in definitions_schema()["$defs"].values() for key in model["properties"]}
    assert {key for key in keys if not re.search(rf"\b{key}\b", text)} == set()


@pytest.mark.parametrize("name", ["definitions.md", "cli.md", "airflow.md", "rest.md"])
def test_the_reference_is_that_of_the_code(name: str) -> None:
    script = ROOT / "scripts" / "write_reference.py"
    written = runpy.run_path(str(script))
    page = (ROOT / "docs" / name).read_text()
    assert written["with_reference"](name, page) == page, f"run {script.name}"


def test_decisions_are_numbered_and_short() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    for number, page in enumerate(pages, 1):
        text = page.read_text()
        assert page.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequence"]
        assert len(text.splitlines()) <= 50
