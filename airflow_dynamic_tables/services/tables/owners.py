"""Owners of tables: the deployment recorded in the catalog entry, for detecting conflicting declarations.

A deployment is an installation, identified by its state database, and the file that declares the table. A moved file, another
checkout and a restored state database are the same deployment; a second Airflow is another one.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.catalog.values import CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError

DEPLOYED_BY = "deployed_by"
"""Key in the catalog's definition: the deployment that wrote it."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An installation, and the host and file from which it deployed a table."""

    installation: str
    host: str
    file: str

    def __str__(self) -> str:
        """Return the deployment for display."""
        return f"{self.file} on {self.host} (installation {self.installation})"


def own_deployment(installation: str, table: DynamicTable) -> Deployment:
    """Return the deployment of this installation that declares a table."""
    return Deployment(installation, socket.gethostname(), str(table.path.absolute()))


def deployed_by(definition: Mapping[str, Any] | None) -> Deployment | None:
    """Return the deployment of a table; ``None`` if not recorded, for example by an earlier release."""
    kept = (definition or {}).get(DEPLOYED_BY)
    names = ("installation", "host", "file")
    return Deployment(*(str(kept.get(name, "")) for name in names)) if isinstance(kept, Mapping) else None


def mark(deployment: Deployment) -> dict[str, Any]:
    """Return the record of a deployment for the catalog's definition."""
    return {DEPLOYED_BY: asdict(deployment)}


def check_owner(entry: CatalogDynamicTable, identifier: TableIdentifier, own: Deployment | None) -> None:
    """Check that a deployment may alter a table.

    :param own: ``None`` if no declared property is altered.
    :raises ConfigurationError: if another installation deployed it; the message names both.
    """
    owner = deployed_by(entry.definition)
    if owner is not None and own is not None and owner.installation != own.installation:
        raise ConfigurationError(claimed(identifier, owner, own))


def rival(entry: CatalogDynamicTable, table: DynamicTable, own: Deployment) -> Deployment | None:
    """Return another deployment that declares a table: another installation, or another existing file that names it."""
    owner = deployed_by(entry.definition)
    if owner is None:
        return None
    if owner.installation != own.installation:
        return owner
    is_other = owner.host == own.host and not _is_copy(owner.file, table) and not _is_below(owner.file, table)
    return owner if is_other and _names(owner.file, table.identifier) else None


def claimed(identifier: TableIdentifier, owner: Deployment, own: Deployment) -> str:
    """Return a message on how to resolve that two deployments declare a table."""
    return (
        f"{identifier} is declared by two: it was deployed from {owner}, and {own} declares it, too. Take it out of one of them. "
        f"If the former is gone, take it over: dynamic-tables apply {identifier} --take-over."
    )


def is_declared_elsewhere(owner: Deployment, identifier: TableIdentifier, root: Path) -> bool:
    """Return whether the file that deployed a table still names it and is neither below ``root`` nor a copy of a file there."""
    file, root = Path(owner.file), root.absolute()
    below = [file.parts[place + 1 :] for place, part in enumerate(file.parts) if part == root.name]
    is_own = file.is_relative_to(root) or any(root.joinpath(*rest).exists() for rest in below)
    return not is_own and _names(owner.file, identifier)


def _is_below(file: str, table: DynamicTable) -> bool:
    """Return whether a file is in the definition folder that now declares the table; a folder declares no table twice."""
    root = table.path.absolute().parents[max(len(Path(table.file).parts) - 2, 0)]
    return Path(file).is_relative_to(root)


def _is_copy(file: str, table: DynamicTable) -> bool:
    """Return whether a file is the one that now declares a table, or has the same relative path in a copy of the definitions.

    A copy is for example another checkout, or another version of a bundle.
    """
    return f"/{file}".endswith(f"/{table.file}")


def _names(file: str, identifier: TableIdentifier) -> bool:
    """Return whether a file exists and contains the name of a table."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"(?<!\w){re.escape(identifier.table)}(?!\w)", text) is not None
