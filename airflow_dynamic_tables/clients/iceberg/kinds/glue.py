"""PyIceberg's client of Glue, which renames in steps that whoever comes next can finish: Glue has no call for that.

The first step decides: it notes the new name in the entry of the table, as long as that is as it was read, so that of several
renamings one is decided. Then an entry of the new name is made, which Glue refuses where there is one, and the former one goes.
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
"""Parameter of the entry of a table with the name that it gets."""

_ATTEMPTS = 5
"""How often an entry is read and changed before those who change it, too, are taken to be too many."""


class RenamingGlue(GlueCatalog):
    """A table is called one way or the other, also when whoever renamed it was killed: the next one finishes what was decided."""

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table within its database; another renaming that was decided is finished first.

        :raises NoSuchTableError: when there is no such table, or it is called otherwise by then.
        :raises TableAlreadyExistsError: when another table has the new name.
        :raises CommitFailedException: when others change the entry all the time.
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
        """Note the new name, or that there is none any more, in an entry.

        :raises CommitFailedException: when it is not as it was read.
        """
        database, name = entry["DatabaseName"], entry["Name"]
        parameters = {} if new_name is None else {RENAMED_TO: new_name}
        self._update_glue_table(database, name, _renamed(entry, name, parameters), entry["VersionId"])

    def _is_moved(self, entry: Mapping[str, Any], new_name: str) -> bool:
        """Do what was decided; False when another table has the name.

        :raises CommitFailedException: when others change what has the name, or it is not known which entry has all rows.
        """
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
            if not self._holds(other, entry):  # somebody has committed by the former name since
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
        """Whether two entries are of one table, which may have been committed to since."""
        if _is_as(entry, other):
            return True
        try:
            tables = [self._convert_glue_to_iceberg(one) for one in (entry, other)]
        except (NoSuchIcebergTableError, NoSuchPropertyException, ValueError):
            return False
        return len({table.metadata.table_uuid for table in tables}) == 1

    def _holds(self, entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether an entry tells of the rows that another one of the same table tells of: it is as that one was, or later."""
        if _is_as(entry, other):
            return True
        table, earlier = (self._convert_glue_to_iceberg(one) for one in (entry, other))
        snapshots = (None, *(snapshot.snapshot_id for snapshot in table.metadata.snapshots))
        states = (state.metadata_file for state in table.metadata.metadata_log)  # the last ones; others may expire snapshots
        return earlier.metadata.current_snapshot_id in snapshots or earlier.metadata_location in states


def _is_as(entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(entry["Parameters"].get(METADATA_LOCATION) == other.get("Parameters", {}).get(METADATA_LOCATION))


def _renamed(entry: Mapping[str, Any], name: str, noted: Mapping[str, str]) -> Any:
    """What an entry is made of that says the same under a name, but for what is noted of a renaming."""
    kept = {key: value for key, value in entry.get("Parameters", {}).items() if key != RENAMED_TO}
    return {**_construct_rename_table_input(name, entry), "Parameters": {**kept, **noted}}
