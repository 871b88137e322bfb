"""Loading definitions: a file or a folder of YAML files becomes ``Definitions``, by way of the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import Cache, Tree
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.exceptions import DefinitionError

_SUFFIXES = (".yaml", ".yml")
_OTHER_FILES = ("catalogs.yaml", "catalogs.yml")

Scope = tuple[str, str]
DEFAULT_SCOPE: Scope = ("default", "default")


def load_definitions(path: Path, *, scope: Scope = DEFAULT_SCOPE, cache: Cache | None = None) -> Definitions:
    """Load a file, or every YAML file below a folder.

    :param scope: catalog and database of names that leave them out, in files that set no default.
    :param cache: where earlier results are kept; by default the user's cache folder.
    :raises DefinitionError: with all mistakes of all files.
    """
    definitions, mistakes = load_sound_definitions(path, scope=scope, cache=cache)
    if mistakes:
        raise DefinitionError(mistakes)
    return definitions


def load_sound_definitions(
    path: Path, *, scope: Scope = DEFAULT_SCOPE, cache: Cache | None = None
) -> tuple[Definitions, tuple[Mistake, ...]]:
    """Everything that is fine, and all mistakes, in order of path, line and column.

    A table is fine when it has no mistake itself: one that reads a broken table stays, because it needs no more than its
    name. A file that is no YAML hides no table of another file, even where that one reads tables of it. Parameters as for
    :func:`load_definitions`.
    """
    cache = cache or Cache.of_user()
    tree = Tree.scan(path, find_files(path), scope)
    result = cache.load(tree)
    if result is None:
        # Reading needs pydantic; most processes find everything in the cache.
        from airflow_dynamic_tables.definitions.reading import read

        result, files = read(path, tree.files, scope, cache.analyse)
        cache.store(tree.including(files), *result)
    return result


def load_task_definitions(
    path: Path, workflow_id: str, *, scope: Scope = DEFAULT_SCOPE, cache: Cache | None = None
) -> Definitions:
    """What one refresh needs: the table with that workflow id, the sources and the dynamic tables it reads or may read.

    Empty when no table has that id or its definition is broken. With a warm cache nothing but this is read.
    Parameters as for :func:`load_definitions`.
    """
    cache = cache or Cache.of_user()
    cached = cache.load_workflow(Tree.scan(path, find_files(path), scope), workflow_id)
    if cached is not None:
        return cached
    every, _ = load_sound_definitions(path, scope=scope, cache=cache)
    table = _of_workflow(every, workflow_id)
    if table is None:
        return Definitions()
    read = (table.identifier, *every.needed_by(table))
    return Definitions(
        {identifier: every.tables[identifier] for identifier in read if identifier in every.tables},
        {identifier: every.sources[identifier] for identifier in read if identifier in every.sources},
    )


def load_table_for_task(
    path: Path, workflow_id: str, *, scope: Scope = DEFAULT_SCOPE, cache: Cache | None = None
) -> DynamicTable | None:
    """The table with that workflow id; see :func:`load_task_definitions`."""
    definitions = load_task_definitions(path, workflow_id, scope=scope, cache=cache)
    return _of_workflow(definitions, workflow_id)


def _of_workflow(definitions: Definitions, workflow_id: str) -> DynamicTable | None:
    return next((table for table in definitions.tables.values() if table.identifier.workflow_id == workflow_id), None)


def find_files(path: Path) -> list[Path]:
    """The definition files of a path, sorted: itself, or all YAML files below it that are not hidden."""
    if not path.is_dir():
        return [path]
    return [Path(file) for file in sorted(_walk(str(path)))]


def _walk(folder: str) -> Iterator[str]:
    """Paths as text: making a thousand Path objects to compare would take longer than reading the cache."""
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.endswith(_SUFFIXES) and entry.name not in _OTHER_FILES:
                    yield entry.path
