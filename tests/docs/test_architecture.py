"""The page on the architecture is true: its folders are those of the package, and what it names exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_dynamic_tables"
TEXT = (ROOT / "docs" / "architecture.md").read_text()

_ROW = re.compile(r"^\| `([\w/]+)/` \| (.*) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_DOTTED = re.compile(r"[a-z]\w*(?:\.\w+)+")
_FREE = re.compile(r"\((\w+)\)")


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _names_in(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """What some statements define; of a class also what stands in it."""
    names: dict[str, list[ast.stmt]] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names[node.name] = node.body if isinstance(node, ast.ClassDef) else []
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names |= {target.id: [] for target in targets if isinstance(target, ast.Name)}
    return names


def _is_defined(dotted: str) -> bool:
    path, parts = PACKAGE, dotted.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if not parts or not (module := path / f"{parts.pop(0)}.py").is_file():
        return False
    body = _tree(module).body
    for part in parts:
        names = _names_in(body)
        if part not in names:
            return False
        body = names[part]
    return True


def _is_there(path: str) -> bool:
    free = set(_FREE.findall((ROOT / "pyproject.toml").read_text()))
    return any((base / path).exists() for base in (ROOT, PACKAGE)) or path.rstrip("/") in free


def _names_of_the_package() -> set[str]:
    nodes = [node for module in PACKAGE.rglob("*.py") for node in ast.walk(_tree(module))]
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.alias)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.arg for node in nodes if isinstance(node, ast.arg)
    }
    return defined | variables | {part for module in PACKAGE.rglob("*") for part in module.relative_to(ROOT).parts}


def test_every_folder_is_there_with_its_docstring() -> None:
    folders = [path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    docstrings = {folder.relative_to(PACKAGE).as_posix(): ast.get_docstring(_tree(folder / "__init__.py")) for folder in folders}
    assert dict(_ROW.findall(TEXT)) == docstrings


def test_every_module_beside_the_folders_is_named() -> None:
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert {name for name in modules if f"`{name}`" not in TEXT} == set()


def test_everything_named_exists() -> None:
    words = {word for word in _CODE.findall(TEXT) if not re.search(r"[\s<]", word)}
    paths = {word for word in words if "/" in word or word.endswith((".py", ".toml"))}
    dotted = {word for word in words - paths if _DOTTED.fullmatch(word)}
    assert {path for path in paths if not _is_there(path)} == set()
    assert {name for name in dotted if not _is_defined(name)} == set()
    assert words - paths - dotted - _names_of_the_package() == set()
    assert len(dotted) > 40  # it still names functions
