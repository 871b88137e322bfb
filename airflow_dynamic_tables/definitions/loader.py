"""Loads a file or folder of YAML and SQL files into ``Definitions``, through the cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import Cache, Tree
from airflow_dynamic_tables.definitions.model import TESTS, Conventions, Definitions, DynamicTable, is_defaults_file
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX
from airflow_dynamic_tables.exceptions import DefinitionError

if TYPE_CHECKING:
    from airflow_dynamic_tables.definitions.obstacles import TableObstacle

YAML_SUFFIXES = (".yaml", ".yml")
_SUFFIXES = (*YAML_SUFFIXES, SQL_SUFFIX)
USUAL = Conventions()
"""Default conventions."""

_OTHER_FILES = ("catalogs.yaml", "catalogs.yml")


def load_definitions(
    path: Path,
    *,
    conventions: Conventions = USUAL,
    cache: Cache | None = None,
    spark: SparkParser | None = None,
) -> Definitions:
    """Load a file, or every YAML and SQL file below a folder.

    :param conventions: settings of the installation for all definitions.
    :param cache: where earlier results are stored; by default the user's cache folder.
    :param spark: decides which queries are valid; by default sqlglot does.
    :raises DefinitionError: with all mistakes of all files.
    :raises ConfigurationError: when Spark's parser does not answer.
    """
    definitions, mistakes = load_sound_definitions(path, conventions=conventions, cache=cache, spark=spark)
    if mistakes:
        raise DefinitionError(mistakes)
    return definitions


def load_sound_definitions(
    path: Path,
    *,
    conventions: Conventions = USUAL,
    cache: Cache | None = None,
    spark: SparkParser | None = None,
    columns: ReturnedColumns | None = None,
) -> tuple[Definitions, tuple[Mistake, ...]]:
    """Load everything that is valid, and return all mistakes, in order of path, line and column.

    A table is valid when it has no mistake itself: one that reads a broken table is kept, because it needs only its name. A
    file that is not valid YAML does not affect the tables of other files, even if they read tables of it. Parameters as for
    :func:`load_definitions`.

    :param columns: determines the columns that the queries return; its problems are mistakes, too.
    """
    cache = cache or Cache.of_user()
    found = find_files(path)
    tree = Tree.scan(path, found.files, conventions, "" if spark is None else spark.version)
    result = cache.load(tree)
    if result is not None and columns is not None and (result[1] or columns.chosen(result[0])):
        result = None
    if result is None:
        # Reading needs pydantic; most processes find everything in the cache.
        from airflow_dynamic_tables.definitions.reading import read
        from airflow_dynamic_tables.yaml_files.variables import Variables

        analyse = cache.analyse if spark is None else functools.partial(cache.analyse_with, spark)
        variables = Variables(os.environ, conventions.variables)
        result, files = read(tree, analyse, variables, columns=columns)
        if columns is None or not result[1]:
            cache.store(tree.including(files, variables.read), *result)
    definitions, mistakes = result
    return definitions, tuple(sorted((*mistakes, *found.mistakes)))


def load_obstacles(path: Path, *, conventions: Conventions = USUAL) -> list[TableObstacle]:
    """Return what hides from which partitions of their sources the valid tables are made, in order of path, line and column.

    Parameters as for :func:`load_definitions`.
    """
    from airflow_dynamic_tables.definitions.obstacles import Obstacles
    from airflow_dynamic_tables.definitions.reading import read
    from airflow_dynamic_tables.yaml_files.variables import Variables

    obstacles = Obstacles()
    tree = Tree.scan(path, find_files(path).files, conventions)
    read(tree, Cache.of_user().analyse, Variables(os.environ, conventions.variables), obstacles=obstacles)
    return obstacles.found


def load_drafted_definitions(
    path: Path, drafts: Mapping[Path, bytes | None], *, conventions: Conventions = USUAL, cache: Cache | None = None
) -> tuple[Definitions, tuple[Mistake, ...]]:
    """As :func:`load_sound_definitions`, as if the drafts were the content of these files of the folder.

    :param path: a folder, which need not exist yet.
    :param drafts: content by path of files below the folder, which need not exist yet; ``None`` removes the file.
    """
    from airflow_dynamic_tables.definitions.reading import read
    from airflow_dynamic_tables.yaml_files.variables import Variables

    cache = cache or Cache.of_user()
    found = find_files(path) if path.exists() else Found([], [])
    written = {file: content for file, content in drafts.items() if content is not None}
    files = sorted({*found.files, *written} - {file for file, content in drafts.items() if content is None})
    variables = Variables(os.environ, conventions.variables)
    (definitions, mistakes), _ = read(Tree.scan(path, files, conventions), cache.analyse, variables, written)
    return definitions, tuple(sorted((*mistakes, *found.mistakes)))


def load_task_definitions(
    path: Path,
    workflow_id: str,
    *,
    conventions: Conventions = USUAL,
    cache: Cache | None = None,
) -> Definitions:
    """Load what the refreshes of a workflow need: its tables, and the sources and dynamic tables they read or may read.

    The result is empty when no table has that workflow or its definition is broken. With a warm cache only this part is read.
    Parameters as for :func:`load_definitions`.
    """
    return _part(
        path,
        lambda cache, tree: cache.load_workflow(tree, workflow_id),
        lambda every: every.of_workflow(workflow_id),
        conventions,
        cache,
    )


def load_table_definitions(
    path: Path,
    name: str,
    *,
    conventions: Conventions = USUAL,
    cache: Cache | None = None,
) -> Definitions:
    """As :func:`load_task_definitions`, for the table of that full name."""
    return _part(
        path,
        lambda cache, tree: cache.load_table(tree, name),
        lambda every: (table for table in every.tables.values() if str(table.identifier) == name),
        conventions,
        cache,
    )


def _part(
    path: Path,
    cached: Callable[[Cache, Tree], Definitions | None],
    tables: Callable[[Definitions], Iterable[DynamicTable]],
    conventions: Conventions,
    cache: Cache | None,
) -> Definitions:
    """Load what the refreshes of some tables need, from the cache, or else load everything and store it in the cache."""
    cache = cache or Cache.of_user()
    part = cached(cache, Tree.scan(path, find_files(path).files, conventions))
    if part is not None:
        return part
    every, _ = load_sound_definitions(path, conventions=conventions, cache=cache)
    return every.part_for(tables(every))


@dataclass(frozen=True, slots=True)
class Found:
    """The definition files of a path, sorted, and mistakes for files that cannot be accessed."""

    files: list[Path]
    mistakes: list[Mistake]


def find_files(path: Path) -> Found:
    """Return the path itself and the defaults of its folder, or all YAML and SQL files below it that are not hidden."""
    mistakes: list[Mistake] = []
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where it may not look
        return Found([path, *_defaults_beside(path)], mistakes)
    files = sorted(_walk(str(path), mistakes))
    return Found([Path(file) for file in files], mistakes)


def may_have_tests(file: Path, text: str) -> bool:
    """Return whether a file may have unit tests, without parsing it. A key may be written with escapes."""
    return file.suffix in YAML_SUFFIXES and (TESTS in text or "\\" in text)


def _defaults_beside(path: Path) -> list[Path]:
    """Return the defaults file in the folder of a single file; how far up its folders are definitions folders is unknown."""
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - as everywhere here, paths as text
    except OSError:
        return []
    return [path.parent / name for name in sorted(names) if is_defaults_file(name) and name != path.name]


def _walk(top: str, mistakes: list[Mistake]) -> Iterator[str]:
    """Yield paths as strings: creating a thousand Path objects takes longer than reading the cache."""
    folders: list[tuple[str, frozenset[str]]] = [(top, frozenset())]
    while folders:
        folder, above = folders.pop()
        real = os.path.realpath(folder)
        if real in above:
            mistakes.append(Mistake(Path(folder), 1, 1, "is a link to a folder that it lies in; remove the link"))
            continue
        with _told(folder, mistakes), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                with _told(entry.path, mistakes):
                    if entry.is_dir():
                        folders.append((entry.path, above | {real}))
                    elif _is_read(entry.name):
                        yield entry.path


def _is_read(name: str) -> bool:
    return (name.endswith(_SUFFIXES) and name not in _OTHER_FILES) or is_defaults_file(name)


@contextmanager
def _told(path: str, mistakes: list[Mistake]) -> Iterator[None]:
    """Convert an error of the file system to a mistake, so that the other files are read."""
    try:
        yield
    except OSError as error:
        mistakes.append(Mistake(Path(path), 1, 1, f"cannot be read: {error.strerror}"))
