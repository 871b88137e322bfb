"""A project: the location of an installation's definitions, and the conventions for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_dynamic_tables.catalog.file import names_and_formats
from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.definitions.cache import Cache, Tree
from airflow_dynamic_tables.definitions.loader import (
    find_files,
    load_drafted_definitions,
    load_obstacles,
    load_sound_definitions,
    load_table_definitions,
    may_have_tests,
)
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.definitions.queries.text import Analysis, refusals
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.settings import (
    allowed_in,
    chosen_catalogs_file,
    find_catalogs_file,
    threshold_in,
    variables_in,
)
from airflow_dynamic_tables.yaml_files.documents import read_text

if TYPE_CHECKING:
    from airflow_dynamic_tables.definitions.obstacles import TableObstacle
    from airflow_dynamic_tables.definitions.query_test_rows import QueryTest


_USUAL = Path("dags/definitions")
"""Default folder of the definitions, relative to the current folder."""


@dataclass(frozen=True, slots=True)
class Project:
    """The file or folder of the definitions, with the conventions of the installation. Definitions are loaded on demand.

    If the folder ``is_new``, it does not exist until a statement declares the first table, and there are no definitions.
    """

    path: Path
    conventions: Conventions
    is_new: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the folder of a new project does not exist yet."""
        return self.is_new and not self.path.exists()

    def load(self, columns: ReturnedColumns | None = None) -> tuple[Definitions, tuple[Mistake, ...]]:
        """Load all valid tables, and every mistake, so that an invalid definition does not hide other tables."""
        if self.is_empty:
            return Definitions(), ()
        return load_sound_definitions(self.path, conventions=self.conventions, columns=columns)

    def obstacles(self) -> list[TableObstacle]:
        """Return what hides from which partitions of their sources the valid tables are made."""
        return load_obstacles(self.path, conventions=self.conventions)

    def load_draft(self, drafts: Mapping[Path, bytes | None]) -> tuple[Definitions, tuple[Mistake, ...]]:
        """Load as :meth:`load` does, with the given contents of files in the folder; ``None``: the file does not exist."""
        return load_drafted_definitions(self.path, drafts, conventions=self.conventions)

    def load_table(self, identifier: TableIdentifier) -> Definitions:
        """Load the definitions that a refresh of one table needs; empty if it is not declared, or not valid."""
        return load_table_definitions(self.path, str(identifier), conventions=self.conventions)

    def signature(self) -> object:
        """Return a value that is equal as long as no definition file changed. Query files are not checked."""
        return Tree.scan(self.path, find_files(self.path).files, self.conventions).stamps


def find_definitions(named: str | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Find the definitions: as named, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, or in the Airflow home.

    :return: ``None`` if the location does not exist.
    """
    return next((path for path in _places(named, environ) if path.exists()), None)


def new_definitions(named: str | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that the first declaration of a new project creates; ``None`` if one is named, which must exist."""
    return None if _chosen(named, environ) else _USUAL.absolute()


def open_project(
    named: str | None = None,
    catalogs: str | None = None,
    threshold: Freshness | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    may_be_new: bool = False,
) -> Project:
    """Open the project of an installation, without Airflow.

    :param named: file or folder of the definitions; default: see :func:`find_definitions`.
    :param catalogs: the catalogs file; default: from the environment, or beside the definitions.
    :param threshold: the freshness below which tables are in continuous mode by default; default: from the environment.
    :param may_be_new: whether the default folder of definitions may be missing; a named one must exist.
    :raises ConfigurationError: if the location does not exist, or the environment is invalid.
    :raises DefinitionError: if the catalogs file is invalid.
    """
    path = find_definitions(named, environ)
    is_new = False
    if path is None and may_be_new:
        path = new_definitions(named, environ)
        is_new = True
    if path is None:
        where = " or ".join(map(str, _places(named, environ)))
        raise ConfigurationError(f"No definitions at {where}; name their folder with --definitions.")
    chosen = {**environ, **({"DYNAMIC_TABLES_CATALOGS": catalogs} if catalogs else {})}
    said = conventions_of(chosen, find_catalogs_file(path), threshold or threshold_in(environ))
    return Project(path, said, is_new)


def conventions_of(environ: Mapping[str, str], beside: Path | None, threshold: Freshness) -> Conventions:
    """Return the conventions of an installation for all definitions.

    :param beside: the catalogs file beside the definitions, used if the environment names none.
    :raises ConfigurationError: if the environment is invalid.
    :raises DefinitionError: if the catalogs file is invalid.
    """
    scope, formats = names_and_formats(chosen_catalogs_file(environ, beside))
    return Conventions(scope, allowed_in(environ), threshold, formats, variables_in(environ))


def _chosen(named: str | None, environ: Mapping[str, str]) -> str | None:
    return named or environ.get("DYNAMIC_TABLES_DEFINITIONS")


def _places(named: str | None, environ: Mapping[str, str]) -> Iterator[Path]:
    if chosen := _chosen(named, environ):
        yield Path(chosen)
    else:
        yield _USUAL
        yield Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser() / "dags/definitions"


def load_tests(
    project: Project, spark: SparkParser | None = None, columns: ReturnedColumns | None = None
) -> tuple[Definitions, tuple[QueryTest, ...], tuple[Mistake, ...]]:
    """Return the definitions of a project, their valid tests, and the mistakes of both.

    :param spark: parses SQL; without it, the built-in parser is used.
    :raises ConfigurationError: if Spark's parser does not respond.
    """
    cache = Cache.of_user()
    read = cache.analyse if spark is None else partial(cache.analyse_with, spark)

    def analyse(query: str) -> Analysis:
        analysis = read(query)
        return replace(analysis, problems=(*analysis.problems, *refusals(analysis.needs, project.conventions.allowed)))

    conventions = project.conventions
    definitions, broken = load_sound_definitions(project.path, conventions=conventions, cache=cache, spark=spark, columns=columns)
    # Unreadable files are reported with the definitions.
    texts = {file: text for file in find_files(project.path).files if (text := read_text(file)[0]) is not None}
    if not any(may_have_tests(file, text) for file, text in texts.items()):
        return definitions, (), broken

    from airflow_dynamic_tables.definitions.query_test_reading import load_query_tests  # pydantic takes 0.3 s to import

    tests, mistakes = load_query_tests(texts, definitions, broken, analyse)
    return definitions, tests, tuple(sorted((*broken, *mistakes)))
