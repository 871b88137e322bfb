"""A project: the definitions of an installation, where they stand and what holds for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_dynamic_tables.catalog.file import names_and_formats
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.definitions.cache import Tree
from airflow_dynamic_tables.definitions.loader import (
    find_files,
    load_definitions,
    load_drafted_definitions,
    load_sound_definitions,
    load_table_definitions,
)
from airflow_dynamic_tables.definitions.model import Conventions, Definitions
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.settings import (
    allowed_in,
    chosen_catalogs_file,
    find_catalogs_file,
    threshold_in,
    variables_in,
)

_USUAL = Path("dags/definitions")
"""The folder of the definitions that is not named, below the current one."""


@dataclass(frozen=True, slots=True)
class Project:
    """The file or folder of the definitions, and what the installation says for all of them; read when it is asked for.

    Where the folder ``is_new``, it does not exist until a statement declares the first table, and there are no definitions.
    """

    path: Path
    conventions: Conventions
    is_new: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the folder of a new project does not exist yet."""
        return self.is_new and not self.path.exists()

    def load(self, columns: ReturnedColumns | None = None) -> tuple[Definitions, tuple[Mistake, ...]]:
        """All tables without a mistake, and every mistake: one broken definition hides no other table.

        :param columns: is asked which columns the queries return.
        """
        if self.is_empty:
            return Definitions(), ()
        return load_sound_definitions(self.path, conventions=self.conventions, columns=columns)

    def load_draft(self, drafts: Mapping[Path, bytes | None]) -> tuple[Definitions, tuple[Mistake, ...]]:
        """As :meth:`load`, what it would give if this stood in these files of the folder; ``None``: if they were not there."""
        return load_drafted_definitions(self.path, drafts, conventions=self.conventions)

    def load_all(self) -> Definitions:
        """All tables.

        :raises DefinitionError: with every mistake of every file.
        """
        return load_definitions(self.path, conventions=self.conventions)

    def load_table(self, identifier: TableIdentifier) -> Definitions:
        """What a refresh of one table needs; empty when nobody declares it, or not rightly."""
        return load_table_definitions(self.path, str(identifier), conventions=self.conventions)

    def signature(self) -> object:
        """Equal to the one before as long as no file of definitions changed; files with queries are not looked at."""
        return Tree.scan(self.path, find_files(self.path).files, self.conventions).stamps


def find_definitions(named: str | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the definitions are: as named, ``$DYNAMIC_TABLES_DEFINITIONS``, ``./dags/definitions``, or Airflow's.

    :return: ``None`` when there is nothing at that place.
    """
    return next((path for path in _places(named, environ) if path.exists()), None)


def new_definitions(named: str | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that the first declaration of a new project makes; ``None`` when one is named: that has to exist."""
    return None if _chosen(named, environ) else _USUAL.absolute()


def open_project(
    named: str | None = None,
    catalogs: str | None = None,
    threshold: Freshness | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    may_be_new: bool = False,
) -> Project:
    """The project of an installation, without Airflow.

    :param named: file or folder of the definitions; as of :func:`find_definitions`.
    :param catalogs: the catalogs file; as of the environment, or beside the definitions.
    :param threshold: the freshness below which tables that say nothing else are refreshed all the time; as of the environment.
    :param may_be_new: whether the usual folder of definitions need not exist; one that is named has to.
    :raises ConfigurationError: when there is nothing at that place, or the environment says what cannot be understood.
    :raises DefinitionError: when the catalogs file is wrong.
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
    """What an installation says for all definitions.

    :param beside: the catalogs file beside the definitions, if the environment names none.
    :raises ConfigurationError: when the environment says what cannot be understood.
    :raises DefinitionError: when the catalogs file is wrong.
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
