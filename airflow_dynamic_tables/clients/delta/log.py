"""The log of a Delta table: numbered, immutable entries of JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_dynamic_tables.clients.delta.put_if_absent import put_if_absent
from airflow_dynamic_tables.clients.files import list_entries, open_file
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

Action = Mapping[str, Mapping[str, Any]]
"""One line of an entry: the action's kind, such as ``add`` or ``commitInfo``, and its content."""

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(?:\d{10}\.(\d{10})\.|[0-9a-f-]{36}\.)?parquet|[0-9a-f-]{36}\.json)")
"""A single-file checkpoint, one part of a multi-part checkpoint, or a v2 checkpoint that refers to sidecar files."""

_OF_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")

FOLDER = "_delta_log"
"""The folder of a table's log."""

_TOGETHER = 16
"""Entries read in parallel, because each read from an object store has high latency."""


class DeltaLog:
    """The log of the table at ``location``, a URI without a trailing slash."""

    def __init__(self, location: str) -> None:
        self.location = location

    def uri(self, version: int) -> str:
        """The URI of a version's entry, whether or not it exists."""
        return f"{self.location}/{FOLDER}/{version:020d}.json"

    def versions(self) -> list[int]:
        """The versions whose entries can be read, ascending and without gaps, from version 0 or a checkpoint on.

        Earlier entries are ignored: a log cleanup may be deleting them, or they were written too late for any reader to use.

        :raises CatalogUnavailableError: when the log cannot be listed.
        """
        names = self._names()
        entries = _numbers(_ENTRY, names)
        known = {*entries}
        gap = next((entry for entry in reversed(entries) if entry - 1 not in known), 0)
        checkpoints = _whole_checkpoints(names)
        # Versions after the newest checkpoint are read from there. Entries after an older one may have been written too late.
        starts = {0, *checkpoints, max(checkpoints, default=-1) + 1}
        start = min((entry for entry in entries if entry >= gap and entry in starts), default=None)
        return [entry for entry in entries if start is not None and entry >= start]

    def may_be_cut_off(self, version: int) -> bool:
        """Return whether a checkpoint covers a version, so that its entry may have been deleted. Raises as :meth:`versions`."""
        return max(_numbers(_OF_CHECKPOINT, self._names()), default=-1) >= version

    def checkpoints(self) -> list[int]:
        """The versions that have complete checkpoints, ascending. Raises as :meth:`versions`."""
        return [*_whole_checkpoints(self._names())]

    def newest_checkpoint(self) -> list[str]:
        """The URIs of the newest complete checkpoint's files. Raises as :meth:`versions`."""
        found = _whole_checkpoints(self._names())
        return [f"{self.location}/{FOLDER}/{name}" for name in (found[max(found)] if found else ())]

    def exists(self) -> bool:
        """Return whether a log exists; after a cleanup it may consist of a checkpoint alone. Raises as :meth:`versions`."""
        return any(_ENTRY.fullmatch(name) or _OF_CHECKPOINT.fullmatch(name) for name in self._names())

    def entry(self, version: int) -> list[Action] | None:
        """All actions of an entry, in order; ``None`` when the entry does not exist (any more).

        :raises CatalogUnavailableError: when the entry cannot be read, is malformed, or is empty.
        """
        actions = self._read(version, whole=True)
        if actions == []:
            raise CatalogUnavailableError(
                f"Entry {self.uri(version)} of the log is empty: somebody is writing it just now, or was stopped before. "
                'When nobody is, put the line {"commitInfo":{}} into it.'
            )
        return actions

    def entries(self, versions: Iterable[int]) -> list[list[Action] | None]:
        """The entries of several versions, in order. Raises as :meth:`entry`."""
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="delta-log") as executor:
            return list(executor.map(self.entry, versions))

    def info(self, version: int) -> Mapping[str, Any] | None:
        """The ``commitInfo`` of an entry; empty when it has none. ``None`` and errors as :meth:`entry`."""
        first = self._read(version, whole=False)
        if first is not None and not any("commitInfo" in action for action in first):
            first = self.entry(version)
        if first is None:
            return None
        return next((action["commitInfo"] or {} for action in first if "commitInfo" in action), {})

    def infos(self, versions: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The ``commitInfo`` of several versions, in order and read lazily; versions without an entry are skipped."""
        waiting = list(versions)
        size = 1  # often only the first one is consumed
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="delta-log") as executor:
            while waiting:
                group, waiting = waiting[:size], waiting[size:]
                size = min(2 * size, _TOGETHER)
                for version, info in zip(group, executor.map(self.info, group), strict=True):
                    if info is not None:
                        yield version, info

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Write an entry atomically; False when an entry of that number exists, possibly from a retry within this call.

        :raises CommitRejectedError: when the entry was certainly not written.
        :raises CommitUnknownError: when the outcome is unknown because the response was lost.
        :raises UnsupportedError: when the store has no atomic put-if-absent; nothing was written.
        """
        text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
        return put_if_absent(self.uri(version), text.encode())

    def _names(self) -> list[str]:
        """Names directly in the log folder; its subfolders can hold checkpoint sidecars or a copy of the log."""
        split = (entry.path.rpartition("/") for entry in list_entries(f"{self.location}/{FOLDER}"))
        return [name for folder, _, name in split if folder.endswith(f"/{FOLDER}")]

    def _read(self, version: int, *, whole: bool) -> list[Action] | None:
        uri = self.uri(version)
        try:
            with as_os_errors(), open_file(uri) as stream:
                lines = stream.readlines() if whole else [stream.readline()]
            actions = [json.loads(line) for line in lines if line.strip()]
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CatalogUnavailableError(f"Entry {uri} of the log cannot be read: {error}") from error
        if not all(isinstance(action, dict) for action in actions):
            raise CatalogUnavailableError(f"Entry {uri} of the log cannot be read: it is no list of actions.")
        return actions


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    """The versions of the files that match a pattern, ascending."""
    return sorted({int(match[1]) for match in map(pattern.fullmatch, names) if match})


def _whole_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """The files of each complete checkpoint by version, ascending; incomplete checkpoints are ignored."""
    found: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        found.setdefault((int(match[1]), int(match[2] or 0)), []).append(match[0])
    return {version: files for (version, parts), files in sorted(found.items()) if len(files) == (parts or len(files))}
