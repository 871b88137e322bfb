"""Versions of a Delta table as its log tells of them: entries of ours among those of others.

An entry is a version when it names the token of a refresh; what others write is none. After somebody else's ``RESTORE`` the table
is where it was, and what was committed in between is no version of it any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_dynamic_tables.clients.delta.log import Action, DeltaLog
from airflow_dynamic_tables.clients.delta.snapshots import DeltaSnapshot, open_snapshot
from airflow_dynamic_tables.clients.files import open_file
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.core.tables.schema import TableLayout
from airflow_dynamic_tables.core.tables.versions import StreamPosition, Version
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.commits import FENCE, TOKEN, version_of
from airflow_dynamic_tables.formats.delta.entries import APPLICATION, FRESH, KEEPS_TOKENS, TOKENS_KEPT, application_of, is_new

STAGES = "_stages"
"""A folder beside the log. A name that begins with an underscore is left alone by ``VACUUM``, whoever calls it."""

STREAM = "dynamic-tables.stream"
"""Property of a version with how far it is of a stream."""


@final
@dataclass(frozen=True, slots=True)
class DeltaHistory:
    """The table at a location as it is now, and its log; ``snapshot`` is ``None`` when there is no table."""

    log: DeltaLog
    snapshot: DeltaSnapshot | None

    @classmethod
    def at(cls, location: str) -> DeltaHistory:
        """Look at a table.

        :raises CatalogUnavailableError: when its log cannot be read.
        """
        return cls(DeltaLog(location), open_snapshot(location))

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever committed."""
        return is_new(self.snapshot)

    @property
    def next_entry(self) -> int:
        """The number that the next entry of the log has."""
        return self.snapshot.version + 1 if self.snapshot is not None else 0

    def versions(self) -> Iterator[Version]:
        """The versions whose entries are kept, newest first."""
        for entry, info in self._lineage():
            if (version := _version(entry, info)) is not None:
                yield version

    def current(self) -> Version | None:
        """The current version, also when another engine's clean-up of the log took its entry; ``None`` before the first one.

        Its number is 0, and it is fresh up to no time, when it is not known which one it is.
        """
        if self.snapshot is None or self.is_new:
            return None
        newest = next(self.versions(), None)
        if newest is not None:
            return newest
        number = self.snapshot.transaction(APPLICATION)
        if number is None:
            return None
        token = self._token_of(number)
        # The number is noted for ever, and a RESTORE whose entry is gone, too, does not show: a file of the version does.
        has_files = token != "" and self.find_files(token) is not None
        if not has_files or any(_is_restore(info) for _, info in self._lineage()):
            return Version(0, "", "", None, self._latest_time())
        return self._forgotten(self.snapshot, number, token)

    def next_number(self) -> int:
        """The number of the next version: above any there ever was."""
        noted = self.snapshot.transaction(APPLICATION) if self.snapshot is not None else None
        return 1 + (noted or 0)

    def find(self, token: str) -> Version | None:
        """The version that a token's commit made, if the table still knows the token."""
        if self.snapshot is None:
            return None
        number = self.snapshot.transaction(application_of(token))
        if number is None and self.snapshot.properties.get(KEEPS_TOKENS) == TOKENS_KEPT:
            return None
        for entry, info in self._infos():
            version = _version(entry, info)
            if version is not None and version.token == token:
                return version
        return self._forgotten(self.snapshot, number, token) if number is not None else None

    def find_files(self, token: str) -> Version | None:
        """The version that a token's commit made, when only files of its stage show it: its number is unknown, 0."""
        stage = f"{stage_of(self.log.location, token)}/"
        if self.snapshot is None or not any(file.uri.startswith(stage) for file in self.snapshot.files):
            return None
        return Version(0, token, "", None, self._latest_time())

    def position(self) -> StreamPosition | None:
        """How far the table is of the stream that its rows are of; ``None`` when they are of none, or somebody changed them."""
        if self.snapshot is None:
            return None
        for entry, info in self._infos():
            told = _told(info)
            if TOKEN in told:
                return _position(told)
            if FENCE not in told and not self._keeps_rows(entry):
                return None
        return None

    def layout(self) -> TableLayout | None:
        """What a refresh has to fit; ``None`` while every query does."""
        if self.snapshot is None or self.is_new:
            return None
        return TableLayout(self.snapshot.columns, self.snapshot.partition_keys)

    def _infos(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What the entries up to the snapshot say of who made them, newest first."""
        return self.log.infos(entry for entry in self.log.versions()[::-1] if entry < self.next_entry)

    def _lineage(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Entries, newest first, without those that somebody else's ``RESTORE`` took back."""
        newest = None
        for entry, info in self._infos():
            if newest is not None and entry > newest:
                continue
            yield entry, info
            newest = self._restored(entry, info) if _is_restore(info) else None

    def _restored(self, entry: int, info: Mapping[str, Any]) -> int:
        """To which entry somebody else's ``RESTORE`` went back; one before all others when nobody knows."""
        try:
            return int((info.get("operationParameters") or {})["version"])
        except (ValueError, TypeError, KeyError):
            return self._with_files_of(entry)

    def _with_files_of(self, restore: int) -> int:
        """The latest entry before a ``RESTORE``, which only says to what time, as of which the table held the same files."""
        first, *others = (entry for entry in self.log.versions() if entry <= restore)
        wanted = self._paths(restore)
        differing = wanted ^ self._paths(first)
        found = -1 if differing else first
        for entry, actions in zip(others[:-1], self.log.entries(others[:-1]), strict=True):
            gone, come = (_paths_in(actions or (), kind) for kind in ("remove", "add"))
            differing = (differing - gone - come) | ((gone - come) & wanted) | (come - wanted)
            if not differing:
                found = entry
        return found

    def _paths(self, entry: int) -> set[str]:
        """The files that the table held as of an entry."""
        snapshot = open_snapshot(self.log.location, entry)
        return {file.path for file in snapshot.files} if snapshot is not None else set()

    def _keeps_rows(self, entry: int) -> bool:
        """Whether an entry of somebody else has the rows of the one before: it rewrote files, or changed none."""
        actions = self.log.entry(entry) or []
        changes = [said for action in actions for kind, said in action.items() if kind in ("add", "remove")]
        return bool(actions) and not any(said.get("dataChange", True) for said in changes)

    def _forgotten(self, snapshot: DeltaSnapshot, number: int, token: str) -> Version:
        """A version whose entry is gone: the table has noted its number, and of the latest one up to when it is fresh."""
        latest = snapshot.transaction(APPLICATION)
        noted = snapshot.transaction(FRESH) if latest == number else None
        fresh = datetime.fromtimestamp(noted / 1000, UTC) if noted is not None else None
        return Version(number, token, "", fresh, self._latest_time())

    def _token_of(self, number: int) -> str:
        """The token of a version whose entry is gone, as the newest checkpoint notes it; empty when it does not."""
        for uri in self.log.newest_checkpoint():
            try:
                with as_os_errors(), open_file(uri) as stream:
                    noted = _transactions(stream, is_text=uri.endswith(".json"))
            except (OSError, KeyError, ValueError, pa.ArrowException) as error:
                raise CatalogUnavailableError(f"Checkpoint {uri} cannot be read: {error}") from error
            for txn in filter(None, noted):
                if txn["version"] == number and txn["appId"].startswith(f"{APPLICATION}/") and txn["appId"] != FRESH:
                    return str(txn["appId"]).partition("/")[2]
        return ""

    def _latest_time(self) -> datetime:
        """When the table was changed last, as its log says; no version can be newer."""
        info = next((info for _, info in self._infos()), {})
        return datetime.fromtimestamp(float(info.get("timestamp") or 0) / 1000, UTC)


def stage_of(location: str, token: str) -> str:
    """The folder of the stage of a token."""
    return f"{location}/{STAGES}/{quote(token, safe='')}"


def _transactions(stream: Any, *, is_text: bool) -> list[Mapping[str, Any] | None]:
    """What applications noted, as a checkpoint has it."""
    if is_text:
        return [json.loads(line).get("txn") for line in stream]
    return [*pq.read_table(stream, columns=["txn"]).column("txn").to_pylist()]


def position_told(position: StreamPosition | None) -> dict[str, str]:
    """What a version tells of the stream that it is of."""
    return {STREAM: json.dumps(asdict(position), sort_keys=True)} if position is not None else {}


def _told(info: Mapping[str, Any]) -> Mapping[str, str]:
    told = info.get("tags")
    return told if isinstance(told, dict) else {}


def _version(entry: int, info: Mapping[str, Any]) -> Version | None:
    """The version that an entry is; ``None`` when it is of others, who may write there what they like."""
    told = _told(info)
    if TOKEN not in told:
        return None
    try:
        return version_of(told, str(entry), int(info["timestamp"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _position(told: Mapping[str, str]) -> StreamPosition | None:
    try:
        return StreamPosition(**json.loads(told[STREAM]))
    except (ValueError, TypeError, KeyError):
        return None


def _paths_in(actions: Iterable[Action], kind: str) -> set[str]:
    """The files that an entry adds or removes."""
    return {action[kind]["path"] for action in actions if kind in action}


def _is_restore(info: Mapping[str, Any]) -> bool:
    """Whether an entry is somebody else's ``RESTORE``."""
    return info.get("operation") == "RESTORE" and TOKEN not in _told(info)
