"""Who uses what a library does not promise must say up to which version it was tried: such a dependency has an upper bound."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_dynamic_tables"
MODULES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}

BROUGHT_BY = {
    "grpc": "pyspark",
    "hive_metastore": "pyiceberg",
    "py4j": "pyspark",
    "pyarrow": "pyiceberg",
    "requests": "pyiceberg",
    "thrift": "pyiceberg",
    "urllib3": "pyiceberg",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
}
"""Modules that come with a library, of which it says itself which versions it takes."""

CALENDAR = {"adlfs", "fsspec", "gcsfs", "s3fs"}
"""Libraries whose versions are months, so that a bound would only say when; nothing private of them is used."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_libraries(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Modules of libraries that are imported, and what is taken from each by name."""
    for node in ast.walk(tree):
        taken: list[tuple[str, list[str]]] = []
        if isinstance(node, ast.Import):
            taken = [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            taken = [(node.module, [alias.name for alias in node.names])]
        yield from (one for one in taken if one[0].partition(".")[0] not in {PACKAGE.name, "_typeshed", *sys.stdlib_module_names})


@cache
def names_of_ours() -> frozenset[str]:
    """Private names that this package gives its own functions, classes, values and attributes."""
    nodes = [node for tree in MODULES.values() for node in ast.walk(tree)]
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    assigned = [node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    values = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return frozenset((*defined, *assigned, *values))


def private_names(tree: ast.AST, ours: Set[str]) -> set[str]:
    """Private names of libraries that a module uses: imported, asked for, or inherited."""
    imported = {name for module, names in of_libraries(tree) for name in (*module.split("."), *names)}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    foreign = {node.attr for node in attributes if node.attr not in ours or ast.unparse(node.value) == "super()"}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr")]
    asked = {str(call.args[1].value) for call in calls if isinstance(call.args[1], ast.Constant)} - ours
    return {name for name in imported | foreign | asked if is_private(name)}


def distribution_of(module: str) -> str:
    """The name in pyproject.toml of what brings a module."""
    provider = re.match(r"airflow\.providers\.(\w+)\.(\w+)", module)
    if provider:
        return f"apache-airflow-providers-{provider[1]}-{provider[2]}".replace("_", "-")
    top = module.partition(".")[0]
    if top == "airflow":
        return "apache-airflow"
    return BROUGHT_BY.get(top) or packages_distributions()[top][0].lower().replace("_", "-")


def requirements() -> dict[str, str]:
    """What pyproject.toml demands of each dependency: of several demands, the one with an upper bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    parts = [re.fullmatch(r"([\w-]+)(?:\[.*\])?(.*)", line) for line in lines]
    return dict(sorted((part[1], part[2]) for part in parts if part))


def unbounded(tree: ast.AST, ours: Set[str], demands: Mapping[str, str]) -> list[str]:
    """Libraries without an upper bound in a module that uses something private of a library."""
    if not private_names(tree, ours):
        return []
    return sorted({name for module, _ in of_libraries(tree) if not is_bounded(demands.get(name := distribution_of(module), ""))})


def is_bounded(demand: str) -> bool:
    return "<" in demand or "==" in demand


@pytest.mark.large
def test_what_is_used_of_a_librarys_insides_has_an_upper_bound() -> None:
    ours, demands = names_of_ours(), requirements()
    without = {name: libraries for name, tree in MODULES.items() if (libraries := unbounded(tree, ours, demands))}
    assert without == {}


@pytest.mark.parametrize(
    "code",
    [
        "from yaml import _yaml",
        "import yaml._yaml",
        "from yaml.composer import Composer, _private",
        "import yaml\nyaml.SafeLoader._yaml_state",
        "import yaml\ngetattr(yaml, '_yaml_state')",
        "import yaml\nclass Mine(yaml.SafeLoader):\n    def _compose(self): return super()._compose()",
    ],
)
def test_a_new_one_is_noticed(code: str) -> None:
    tree, ours = ast.parse(code), {*names_of_ours(), "_compose"}
    assert unbounded(tree, ours, {"pyyaml": ">=6"}) == ["pyyaml"]
    assert unbounded(tree, ours, {"pyyaml": ">=6,<7"}) == []


def test_every_dependency_says_up_to_which_version_it_was_tried() -> None:
    """But for those whose versions are months; and every dependency says from which version on."""
    demands = requirements()
    assert {name for name, demand in demands.items() if not is_bounded(demand)} == CALENDAR
    assert {name for name, demand in demands.items() if not re.match(">=|==", demand)} == set()
