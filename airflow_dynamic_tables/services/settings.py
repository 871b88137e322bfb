"""Settings of an installation: the location of its state, and what queries may do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.clients.connections import Connections, environment_connections
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.schedule import FRESHNESS_THRESHOLD, Freshness
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.outcomes import Listener

_VARIABLES = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]*")


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """The database of ledger and embedded catalogs, their warehouse, and the catalogs file, if any.

    ``connections`` looks up the Airflow connections that the catalogs file names. With ``private_files``, state and plans in
    local files are accessible only to their owner, whatever the umask; so is ``home``, the folder of the embedded state and
    warehouse, if it is new. ``allowed`` defines what queries may do besides SQL. ``listeners`` receive the outcome of every
    write.
    """

    database_url: str
    warehouse: str
    catalogs_file: Path | None = None
    connections: Connections = field(default_factory=lambda: environment_connections(os.environ), compare=False)
    private_files: bool = True
    home: Path | None = None
    allowed: Allowed = EVERYTHING
    listeners: tuple[Listener, ...] = field(default=(), compare=False)

    @property
    def private_home(self) -> Path | None:
        """The folder to make private before anything is written into the warehouse, if any."""
        is_embedded = self.home is not None and self.warehouse.startswith(f"file://{self.home}/")
        return self.home if is_embedded and self.private_files else None


def embedded_settings(environ: Mapping[str, str], catalogs_file: Path | None = None) -> WorkspaceSettings:
    """Return settings that need no set-up: SQLite and a warehouse folder under the Airflow home.

    ``DYNAMIC_TABLES_DATABASE_URL``, ``DYNAMIC_TABLES_WAREHOUSE`` and ``DYNAMIC_TABLES_CATALOGS`` override them, and
    ``DYNAMIC_TABLES_FILE_ACCESS`` defines who may read state and plans: their ``owner``, or as the ``umask`` permits.

    :raises ConfigurationError: if it has another value.
    """
    access = environ.get("DYNAMIC_TABLES_FILE_ACCESS") or "owner"
    if access not in ("owner", "umask"):
        raise ConfigurationError(f"DYNAMIC_TABLES_FILE_ACCESS is {access!r}; write owner or umask.")
    home = Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser().absolute() / "dynamic_tables"
    return WorkspaceSettings(
        database_url=environ.get("DYNAMIC_TABLES_DATABASE_URL") or f"sqlite:///{home / 'state.db'}",
        warehouse=environ.get("DYNAMIC_TABLES_WAREHOUSE") or f"file://{home}/warehouse",
        catalogs_file=chosen_catalogs_file(environ, catalogs_file),
        private_files=access == "owner",
        home=home,
        allowed=allowed_in(environ),
    )


def allowed_in(environ: Mapping[str, str]) -> Allowed:
    """Return what ``DYNAMIC_TABLES_ALLOW`` permits queries besides SQL; everything, if it is not set.

    It is not a key of a file, because users who write definitions may be able to write that file, too.

    :raises ConfigurationError: if it is malformed.
    """
    try:
        return Allowed.parse(environ.get("DYNAMIC_TABLES_ALLOW") or "")
    except ValueError as error:
        raise ConfigurationError(f"DYNAMIC_TABLES_ALLOW: {error}.") from error


def variables_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names and patterns of environment variables for definitions in ``DYNAMIC_TABLES_VARIABLES``; none by default.

    It is not a key of a file, because users who write definitions may be able to write that file, too.

    :raises ConfigurationError: if a pattern is invalid; the message names it.
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
    """Return ``DYNAMIC_TABLES_FRESHNESS_THRESHOLD``, the freshness below which tables are in continuous mode by default.

    :raises ConfigurationError: if it is not a duration.
    """
    return parse_threshold("DYNAMIC_TABLES_FRESHNESS_THRESHOLD", environ.get("DYNAMIC_TABLES_FRESHNESS_THRESHOLD") or "")


def parse_threshold(setting: str, text: str) -> Freshness:
    """Parse the freshness threshold of a setting; the default one if it is empty.

    :raises ConfigurationError: if it is not a duration; the message names the setting.
    """
    try:
        return Freshness.parse(text) if text.strip() else FRESHNESS_THRESHOLD
    except ValueError as error:
        raise ConfigurationError(f"{setting}: {error}.") from error


def find_catalogs_file(definitions: Path) -> Path | None:
    """Return the ``catalogs.yaml`` in the folder of the definitions, or beside that folder."""
    folder = definitions.parent if definitions.is_file() else definitions
    places = (place / name for place in (folder, folder.parent) for name in ("catalogs.yaml", "catalogs.yml"))
    return next((place for place in places if place.is_file()), None)


def chosen_catalogs_file(environ: Mapping[str, str], beside: Path | None) -> Path | None:
    """Return the catalogs file that ``DYNAMIC_TABLES_CATALOGS`` names, otherwise the one beside the definitions."""
    named = environ.get("DYNAMIC_TABLES_CATALOGS")
    return Path(named) if named else beside
