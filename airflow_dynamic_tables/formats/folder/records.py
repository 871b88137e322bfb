"""The folder of one table: its data files, and beside them records of its latest versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from airflow_dynamic_tables.clients.deleting import delete_files
from airflow_dynamic_tables.clients.files import create_text, exists, list_entries, list_files, plain_path, read_text
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.tables.data_files import partition_of
from airflow_dynamic_tables.core.tables.schema import Column, TableLayout
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, TableNotFoundError

VERSIONS = "_versions"
"""Where the records are; for Spark and Hive, names that begin with an underscore are no data."""

_RECORDS = 20
"""How many records are kept, for the outcome of refreshes that ended side by side."""


class TableFolder:
    """The folder of one table: its data files, and the records of its latest versions."""

    def __init__(self, location: str, file_format: str) -> None:
        self.location = location
        self.format = file_format

    def files(self) -> list[str]:
        """Data files, sorted, spelled as the location is."""
        return list(self.listing())

    def listing(self) -> dict[str, Mapping[str, Any]]:
        """Data files, sorted, and what the store says of each: its size, and a time or tag of the last change."""
        if not exists(self.location):
            return {}
        root = plain_path(self.location)
        return {self.location + plain_path(file)[len(root) :]: info for file, info in list_files(self.location).items()}

    def partition(self, file: str) -> dict[str, str]:
        """The partition that the folder of a file names."""
        return partition_of(file.rpartition("/")[0][len(self.location) + 1 :])

    def records(self) -> Iterator[dict[str, Any]]:
        """Records of the latest versions, newest first; one that nobody finished writing tells nothing.

        :raises CatalogUnavailableError: when they cannot be read.
        """
        for name in reversed(self._names()):
            try:
                yield json.loads(read_text(f"{self.location}/{VERSIONS}/{name}"))
            except ValueError:
                continue
            except OSError as error:
                raise CatalogUnavailableError(f"Cannot read the versions of {self.location}: {error}") from error

    def record(self) -> dict[str, Any] | None:
        """The record of the current version."""
        return next(self.records(), None)

    def filled(self) -> dict[str, Any]:
        """As :meth:`record`.

        :raises TableNotFoundError: when there is none.
        """
        if (record := self.record()) is None:
            raise TableNotFoundError(f"Table {self.location} does not exist or has no version yet.")
        return record

    def current(self) -> Version | None:
        """The current version."""
        record = self.record()
        return version_in(record) if record is not None else None

    def last_number(self) -> int:
        """The highest number of any version, finished or not; 0 when there is none."""
        return max((int(name.partition(".")[0]) for name in self._names()), default=0)

    def add(self, record: Mapping[str, Any]) -> bool:
        """Write a record; False when somebody else was first to take its number."""
        try:
            create_text(f"{self.location}/{VERSIONS}/{record['number']:08d}.json", json.dumps(record, indent=1))
        except FileExistsError:
            return False
        versions = f"{self.location}/{VERSIONS}"
        delete_files(versions, [f"{versions}/{name}" for name in self._names()[:-_RECORDS]])
        return True

    def _names(self) -> list[str]:
        entries = list_entries(f"{self.location}/{VERSIONS}")
        return sorted(entry.path.rpartition("/")[2] for entry in entries if entry.path.endswith(".json"))


def columns_in(record: Mapping[str, Any]) -> tuple[Column, ...]:
    """The columns that a record tells of."""
    return from_plain(tuple[Column, ...], record["columns"])


def layout_in(record: Mapping[str, Any]) -> TableLayout:
    """The columns and partition keys that a record tells of."""
    return TableLayout(columns_in(record), tuple(record["partition_keys"]))


def version_in(record: Mapping[str, Any]) -> Version:
    """The version that a record tells of."""
    known = {field.name: record[field.name] for field in fields(Version) if field.name in record}
    return from_plain(Version, {**known, "snapshot": str(record["number"])})


def record_of(version: Version, keys: Sequence[str], columns: Sequence[Column]) -> dict[str, Any]:
    """The record of a version, and of the table's columns as of then."""
    told = {key: value for key, value in to_plain(version).items() if key != "snapshot"}
    return {**told, "partition_keys": list(keys), "columns": to_plain(tuple(columns))}
