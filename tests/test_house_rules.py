"""The rules of this code base, as far as a machine can check them."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from airflow_dynamic_tables.runners.spark_submit import application_zip

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_dynamic_tables"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE, MAX_FUNCTION, MAX_ARGUMENTS = 600, 40, 6
LATE_IMPORTS = {
    "catalog/sql/tables.py": "PyIceberg takes 0.3 s, which the entries of a catalog do not need",
    "clients/files.py": "hdfs-native is an extra",
    "definitions/loader.py": "pydantic and sqlglot take half a second, which definitions from the cache do not need",
    "definitions/queries/text.py": "sqlglot takes half a second, and names and plain queries do without",
    "formats/iceberg/stage.py": "Arrow takes half a second, which a refresh needs only when it commits",
    "formats/iceberg/table.py": "Arrow takes half a second, which reading metadata does not need",
    "services/project.py": "pydantic takes 0.2 s, which trees without query tests do not need",
    "operators/lineage/emitting.py": "OpenLineage is an extra",
    "plugins/commands.py": "every command of Airflow imports it",
    "pytest_plugin.py": "every run of pytest imports it, whatever that tests",
    "plugins/gateway/mounting.py": "every process of Airflow imports it",
}
"""Modules that may import our own code within functions, and why."""

MIGRATIONS = "airflow_dynamic_tables.clients.database.migrations.versions."

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _definitions(node: ast.AST, path: str) -> Iterator[tuple[str, Definition]]:
    """Every class and function, by dotted path; what is nested in a function counts as its part."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield f"{path}.{child.name}", child
        if not isinstance(child, Function):
            yield from _definitions(child, f"{path}.{child.name}" if isinstance(child, ast.ClassDef) else path)


def _package_definitions() -> Iterator[tuple[str, Definition]]:
    for module in MODULES:
        yield from _definitions(_tree(module), ".".join(module.relative_to(ROOT).with_suffix("").parts))


def _public(path: str) -> bool:
    return not any(part.startswith("_") for part in path.split("."))


@pytest.mark.parametrize("module", [path for path in MODULES if path.name == "__init__.py"], ids=_name)
def test_init_files_hold_a_docstring_and_nothing_else(module: Path) -> None:
    tree = _tree(module)
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


def test_every_module_says_what_it_is() -> None:
    assert [_name(path) for path in MODULES if not ast.get_docstring(_tree(path))] == []


def test_everything_public_has_a_docstring() -> None:
    """But for methods that implement a documented one of an interface in the package: they inherit its docstring."""
    definitions = list(_package_definitions())
    bases: dict[str, set[str]] = {}
    for _, node in definitions:
        if isinstance(node, ast.ClassDef):
            bases.setdefault(node.name, set()).update(ast.unparse(base).partition("[")[0] for base in node.bases)
    documented = {tuple(path.split(".")[-2:]) for path, node in definitions if ast.get_docstring(node)}

    def inherits(owner: str, method: str) -> bool:
        return any((base, method) in documented or inherits(base, method) for base in bases.get(owner, ()))

    missing = [path for path, node in definitions if _public(path) and not ast.get_docstring(node)]
    assert [path for path in missing if not inherits(*path.split(".")[-2:])] == []


def test_files_are_short() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_FILE} == {}


def test_imports_stand_at_the_top() -> None:
    """But for those with a reason; a reason that is no longer needed has to go, too."""
    late = {str(path.relative_to(PACKAGE)) for path in MODULES if _imports_late(_tree(path))}
    assert late == set(LATE_IMPORTS)


def _imports_late(tree: ast.Module) -> bool:
    """Whether a function imports our own code."""
    imports = [node for function in ast.walk(tree) if isinstance(function, Function) for node in ast.walk(function)]
    modules = [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    return any(module.split(".")[0] == PACKAGE.name for module in modules)


def test_functions_are_short() -> None:
    lengths = {
        path: (node.end_lineno or 0) - node.lineno + 1 for path, node in _package_definitions() if isinstance(node, Function)
    }
    assert {path: n for path, n in lengths.items() if n > MAX_FUNCTION and not path.startswith(MIGRATIONS)} == {}


def test_functions_take_few_arguments() -> None:
    counts = {}
    for path, node in _package_definitions():
        if isinstance(node, Function):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            counts[path] = len([name for name in names if name not in ("self", "cls")])
    assert {path: count for path, count in counts.items() if count > MAX_ARGUMENTS} == {}


def test_formats_are_named_where_they_are_at_home() -> None:
    """Whatever depends on a format is told by its traits, or found by the registry; so a new one is one more folder."""
    at_home = ("formats/", "clients/", "catalog/sql/", "catalog/hive/", "catalog/postgres.py", "catalog/file.py")
    names = {"iceberg", "hive", "delta", "jdbc", "folder"}
    named = [
        f"{_name(path)}:{node.lineno}: {node.value!r}"
        for path in MODULES
        if not (place := path.relative_to(PACKAGE).as_posix()).startswith(at_home) and place != "core/formats.py"
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert named == []


def test_no_assert_and_nothing_left_to_do() -> None:
    asserts = [_name(path) for path in MODULES if any(isinstance(node, ast.Assert) for node in ast.walk(_tree(path)))]
    notes = [_name(path) for path in MODULES if re.search(r"#\s*(TODO|FIXME|XXX)\b", path.read_text())]
    assert (asserts, notes) == ([], [])


def test_the_tests_mirror_the_package() -> None:
    """But for those of everything at once, and what they share; every folder of them is a package that says what it is."""
    modules = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")]
    folders = {path.parent for path in modules if path.parent.parts}
    of_all = {"contracts", "docs", "engines", "faults", "scripts", "support", "system"}
    assert {folder for folder in folders if folder.parts[0] not in of_all and not _is_of_the_package(folder)} == set()
    assert {folder for folder in folders if folder / "__init__.py" not in modules} == set()


def _is_of_the_package(folder: Path) -> bool:
    return (PACKAGE / folder).is_dir() or (PACKAGE / folder).with_suffix(".py").is_file()


def test_parameters_have_an_order() -> None:
    """The workers of a run must find the same tests in the same order, and a set has another order in every process."""
    modules = (ROOT / "tests").rglob("*.py")
    calls = ((path, node) for path in modules for node in ast.walk(_tree(path)) if isinstance(node, ast.Call))
    unordered = [
        f"{_name(path)}:{call.lineno}"
        for path, call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "parametrize"
        if any(isinstance(argument, ast.Set | ast.SetComp) for argument in call.args)
    ]
    assert unordered == []


def test_types_are_published() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_core_needs_the_standard_library_and_croniter_only(tmp_path: Path) -> None:
    for name in ("croniter", *_requirements("croniter")):
        for top in {Path(file.parts[0]) for file in distribution(name).files or () if file.suffix == ".py"}:
            (tmp_path / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    (tmp_path / PACKAGE.name).symlink_to(PACKAGE)
    modules = (path.relative_to(ROOT).with_suffix("") for path in (PACKAGE / "core").rglob("*.py"))
    _import_with_nothing_but([tmp_path], [".".join(module.parts).removesuffix(".__init__") for module in modules])


def test_the_job_needs_its_zip_and_pyspark_only(tmp_path: Path) -> None:
    for name in ("pyspark", "py4j"):
        (tmp_path / name).symlink_to(Path(str(distribution(name).locate_file(name))))
    archive = application_zip()
    names = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in ZipFile(archive).namelist()]
    needed = (path for folder in ("core", "jobs") for path in (PACKAGE / folder).rglob("*.py"))
    assert {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in needed} <= set(names)
    # croniter is of no use on the cluster, so the job must not want it.
    _import_with_nothing_but([archive, tmp_path], [name for name in names if not name.endswith(".cron")])


def _import_with_nothing_but(paths: list[Path], modules: list[str]) -> None:
    code = f"import sys; sys.path += {list(map(str, paths))!r}; [__import__(name) for name in {modules!r}]"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr


def _requirements(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Names of everything a distribution needs, directly or not."""
    plain = (re.split(r"[\s<>=!~;\[(]", line)[0] for line in distribution(name).requires or () if "extra ==" not in line)
    direct = set(plain) - seen
    return direct.union(*(_requirements(other, seen | direct) for other in direct))


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_nothing_of_this_machine_is_tracked() -> None:
    traces = [
        str(ROOT),
        sys.prefix,
        f"{Path.home()}/",
        *(value for name, value in os.environ.items() if name.endswith("INDEX_URL")),
    ]
    pattern = re.compile("|".join([*map(re.escape, traces), r"/(?:home|Users)/\w+/", r"\w+-index-url\s*="]))
    found = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in _tracked()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_names_of_public_classes_are_unique() -> None:
    names = Counter(
        node.name
        for module in PACKAGE.rglob("*.py")
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()
