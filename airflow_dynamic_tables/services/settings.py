"""Where the state of an installation lives."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.clients.connections import Connections, environment_connections
from airflow_dynamic_tables.core.refresh.allowed import EVERYTHING, Allowed
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import FRESHNESS_THRESHOLD
from airflow_dynamic_tables.exceptions import ConfigurationError

_VARIABLES = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the state lives: the database of ledger and embedded catalogs, their warehouse, and the catalogs file if any.

    ``connections`` finds the Airflow connections that the catalogs file names. With ``private_files``, state and plans in local
    files are for their owner only, whatever the umask, and so is ``home``, the folder of the embedded state and warehouse, when
    it is new. ``allowed`` says what queries may do besides SQL.
    """

    database_url: str
    warehouse: str
    catalogs_file: Path | None = None
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ), compare=False)
    private_files: bool = True
    home: Path | None = None
    allowed: Allowed = EVERYTHING

    @property
    def private_home(self) -> Path | None:
        """The folder that has to be private before anything is written into the warehouse, if there is one."""
        is_embedded = self.home is not None and self.warehouse.startswith(f"file://{self.home}/")
        return self.home if is_embedded and self.private_files else None


def embedded_settings(environ: Mapping[str, str], catalogs_file: Path | None = None) -> Settings:
    """State without any set-up: SQLite and a warehouse folder under the Airflow home.

    ``DYNAMIC_TABLES_DATABASE_URL``, ``DYNAMIC_TABLES_WAREHOUSE`` and ``DYNAMIC_TABLES_CATALOGS`` override it, and
    ``DYNAMIC_TABLES_FILE_ACCESS`` says who may read state and plans: their ``owner``, or who the ``umask`` lets.

    :raises ConfigurationError: when it says anything else.
    """
    access = environ.get("DYNAMIC_TABLES_FILE_ACCESS") or "owner"
    if access not in ("owner", "umask"):
        raise ConfigurationError(f"DYNAMIC_TABLES_FILE_ACCESS is {access!r}; write owner or umask.")
    home = Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser().absolute() / "dynamic_tables"
    return Settings(
        database_url=environ.get("DYNAMIC_TABLES_DATABASE_URL") or f"sqlite:///{home / 'state.db'}",
        warehouse=environ.get("DYNAMIC_TABLES_WAREHOUSE") or f"file://{home}/warehouse",
        catalogs_file=chosen_catalogs_file(environ, catalogs_file),
        private_files=access == "owner",
        home=home,
        allowed=allowed_in(environ),
    )


def allowed_in(environ: Mapping[str, str]) -> Allowed:
    """What ``DYNAMIC_TABLES_ALLOW`` lets queries do besides SQL; everything, when it is not set.

    It is no key of a file, because whoever writes definitions could write that, too.

    :raises ConfigurationError: when it is malformed.
    """
    try:
        return Allowed.parse(environ.get("DYNAMIC_TABLES_ALLOW") or "")
    except ValueError as error:
        raise ConfigurationError(f"DYNAMIC_TABLES_ALLOW: {error}.") from error


def variables_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names and patterns of the environment variables for definitions, of ``DYNAMIC_TABLES_VARIABLES``; none by default.

    It is no key of a file, because users who write definitions may be able to write that file, too.

    :raises ConfigurationError: names the pattern that matches no variable.
    """
    patterns = tuple(filter(None, map(str.strip, environ.get("DYNAMIC_TABLES_VARIABLES", "").split(","))))
    for pattern in patterns:
        if not _VARIABLES.fullmatch(pattern):
            raise ConfigurationError(
                f"DYNAMIC_TABLES_VARIABLES: {pattern!r} is no name of a variable and no pattern; write names and patterns "
                "such as STAGE,SALES_* with commas between them."
            )
    return patterns


def threshold_in(environ: Mapping[str, str]) -> Freshness:
    """The freshness below which ``DYNAMIC_TABLES_FRESHNESS_THRESHOLD`` has tables refreshed all the time that say nothing else.

    :raises ConfigurationError: when it is no length of time.
    """
    return parse_threshold("DYNAMIC_TABLES_FRESHNESS_THRESHOLD", environ.get("DYNAMIC_TABLES_FRESHNESS_THRESHOLD") or "")


def parse_threshold(setting: str, text: str) -> Freshness:
    """That threshold as a setting has it; the default one when it is empty.

    :raises ConfigurationError: when it is no length of time; names the setting.
    """
    try:
        return Freshness.parse(text) if text.strip() else FRESHNESS_THRESHOLD
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {error}.") from error


def find_catalogs_file(definitions: Path) -> Path | None:
    """The ``catalogs.yaml`` in the folder of the definitions, or beside that folder."""
    folder = definitions.parent if definitions.is_file() else definitions
    places = (place / name for place in (folder, folder.parent) for name in ("catalogs.yaml", "catalogs.yml"))
    return next((place for place in places if place.is_file()), None)


def chosen_catalogs_file(environ: Mapping[str, str], beside: Path | None) -> Path | None:
    """The catalogs file that ``DYNAMIC_TABLES_CATALOGS`` names, else the one beside the definitions."""
    named = environ.get("DYNAMIC_TABLES_CATALOGS")
    return Path(named) if named else beside
