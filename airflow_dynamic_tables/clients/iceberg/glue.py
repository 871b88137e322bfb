"""PyIceberg's Glue client with a recoverable rename, because Glue has no rename call.

The first step decides: it records the new name in the table's entry by an optimistic update, so that one of several concurrent
renames wins. Then an entry of the new name is created, which Glue refuses if one exists, and the old entry is deleted. A later
rename completes an interrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyiceberg.catalog import METADATA_LOCATION
from pyiceberg.catalog.glue import GlueCatalog, _construct_rename_table_input
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

RENAMED_TO = "dynamic-tables.renamed-to"
"""Parameter of a table's entry that records its new name."""

_ATTEMPTS = 5
"""Attempts to read and update an entry before a conflict with concurrent changes is reported."""


class RenamingGlue(GlueCatalog):
    """A Glue catalog whose renames are atomic in effect: the next rename completes one that was decided and interrupted."""

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table within its database; a rename that was decided earlier is completed first.

        :raises NoSuchTableError: when the table does not exist, or was renamed meanwhile.
        :raises TableAlreadyExistsError: when another table has the new name.
        :raises CommitFailedException: when the entry keeps changing concurrently.
        """
        database, name = self.identifier_to_database_and_table(from_identifier, NoSuchTableError)
        _, new_name = self.identifier_to_database_and_table(to_identifier)
        why = ""
        for _ in range(_ATTEMPTS):
            entry = self._get_glue_table(database, name)
            if name == new_name:
                raise TableAlreadyExistsError(f"Table {database}.{name} already exists")
            decided = entry.get("Parameters", {}).get(RENAMED_TO)
            try:
                if decided is not None and self._is_moved(entry, decided):
                    if decided == new_name:
                        return self.load_table(to_identifier)
                    raise NoSuchTableError(f"Table {database}.{name} is called {decided} now")
                self._decide(entry, None if decided == new_name else new_name)
                if decided == new_name:
                    raise TableAlreadyExistsError(f"Table {database}.{new_name} already exists")
            except CommitFailedException as error:
                why = str(error)
        raise CommitFailedException(f"Table {database}.{name} was not renamed in {_ATTEMPTS} attempts: {why}.")

    def _decide(self, entry: Mapping[str, Any], new_name: str | None) -> None:
        """Record or clear the new name in an entry."""
        database, name = entry["DatabaseName"], entry["Name"]
        parameters = {} if new_name is None else {RENAMED_TO: new_name}
        self._update_glue_table(database, name, _renamed(entry, name, parameters), entry["VersionId"])

    def _is_moved(self, entry: Mapping[str, Any], new_name: str) -> bool:
        """Complete a decided rename; False when another table has the name."""
        database, name = entry["DatabaseName"], entry["Name"]
        try:
            self._create_glue_table(database, new_name, _renamed(entry, new_name, {}))
        except TableAlreadyExistsError as taken:
            try:
                other = self._get_glue_table(database, new_name)
            except NoSuchTableError as error:
                raise CommitFailedException(f"Table {database}.{new_name} was dropped just now") from error
            if not self._is_same(entry, other):
                return False
            if not self._holds(other, entry):  # a commit was made by the old name since
                if not self._holds(entry, other):
                    raise CommitFailedException(
                        f"{database}.{name} and {database}.{new_name} are one table, and others wrote by both names; delete from "
                        "Glue the one whose rows may go, and no files"
                    ) from taken
                self._update_glue_table(database, new_name, _renamed(entry, new_name, {}), other["VersionId"])
        with suppress(NoSuchTableError):
            self.drop_table((database, name))
        return True

    def _is_same(self, entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether two entries are of the same table, which may have been committed to since."""
        if _is_as(entry, other):
            return True
        try:
            tables = [self._convert_glue_to_iceberg(one) for one in (entry, other)]
        except (NoSuchIcebergTableError, NoSuchPropertyException, ValueError):
            return False
        return len({table.metadata.table_uuid for table in tables}) == 1

    def _holds(self, entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether an entry has the state of another entry of the same table, or a later one, and so all its rows."""
        if _is_as(entry, other):
            return True
        table, earlier = (self._convert_glue_to_iceberg(one) for one in (entry, other))
        snapshots = (None, *(snapshot.snapshot_id for snapshot in table.metadata.snapshots))
        states = (state.metadata_file for state in table.metadata.metadata_log)  # latest only; snapshots may be expired
        return earlier.metadata.current_snapshot_id in snapshots or earlier.metadata_location in states


def _is_as(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(entry["Parameters"].get(METADATA_LOCATION) == other.get("Parameters", {}).get(METADATA_LOCATION))


def _renamed(entry: Mapping[str, Any], name: str, noted: Mapping[str, str]) -> Any:
    """The input for a copy of an entry by a name, with the rename parameter replaced by ``noted``."""
    kept = {key: value for key, value in entry.get("Parameters", {}).items() if key != RENAMED_TO}
    return {**_construct_rename_table_input(name, entry), "Parameters": {**kept, **noted}}
