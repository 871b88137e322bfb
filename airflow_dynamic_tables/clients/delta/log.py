"""The log of a Delta table: entries with numbers, each a few lines of JSON that nobody changes any more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow_dynamic_tables.clients.delta.putting import put_if_absent
from airflow_dynamic_tables.clients.files import list_entries, open_file
from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import CatalogUnavailableError

Action = Mapping[str, Mapping[str, Any]]
"""One line of an entry: its kind, such as ``add`` or ``commitInfo``, and what it says."""

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(?:\d{10}\.(\d{10})\.|[0-9a-f-]{36}\.)?parquet|[0-9a-f-]{36}\.json)")
"""A checkpoint in one file, one of so many parts, or one that names files with more of it."""

_OF_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*")

FOLDER = "_delta_log"
"""The folder of a table with its log."""

_TOGETHER = 16
"""How many entries are read at the same time: an object store takes its time for each."""


class DeltaLog:
    """The log of the table whose folder is at ``location``, a URI without a slash at its end."""

    def __init__(self, location: str) -> None:
        self.location = location

    def uri(self, version: int) -> str:
        """Where the entry of a version is, or would be."""
        return f"{self.location}/{FOLDER}/{version:020d}.json"

    def versions(self) -> list[int]:
        """The versions that can be read by their entries, ascending: without gaps, from the first one or a checkpoint on.

        Before these there can be what somebody is cutting off just now, or an entry that came too late, where nobody reads it.

        :raises CatalogUnavailableError: when nobody can tell.
        """
        names = self._names()
        entries = _numbers(_ENTRY, names)
        known = {*entries}
        gap = next((entry for entry in reversed(entries) if entry - 1 not in known), 0)
        checkpoints = _whole_checkpoints(names)
        # What comes after the newest checkpoint is read from there. After an older one it may have come too late.
        starts = {0, *checkpoints, max(checkpoints, default=-1) + 1}
        start = min((entry for entry in entries if entry >= gap and entry in starts), default=None)
        return [entry for entry in entries if start is not None and entry >= start]

    def may_be_cut_off(self, version: int) -> bool:
        """Whether a checkpoint stands for a version, so that its entry may have been taken away. As :meth:`versions`."""
        return max(_numbers(_OF_CHECKPOINT, self._names()), default=-1) >= version

    def checkpoints(self) -> list[int]:
        """The versions that have checkpoints, ascending. As :meth:`versions`."""
        return [*_whole_checkpoints(self._names())]

    def newest_checkpoint(self) -> list[str]:
        """The files of the newest checkpoint, by their URIs. As :meth:`versions`."""
        found = _whole_checkpoints(self._names())
        return [f"{self.location}/{FOLDER}/{name}" for name in (found[max(found)] if found else ())]

    def exists(self) -> bool:
        """Whether there is a log at all; of one that was cleaned up there may be a checkpoint alone. As :meth:`versions`."""
        return any(_ENTRY.fullmatch(name) or _OF_CHECKPOINT.fullmatch(name) for name in self._names())

    def entry(self, version: int) -> list[Action] | None:
        """All that an entry says, in its order; ``None`` when it is not there (any more).

        :raises CatalogUnavailableError: when it cannot be read, is garbage, or says nothing (yet).
        """
        actions = self._read(version, whole=True)
        if actions == []:
            raise CatalogUnavailableError(
                f"Entry {self.uri(version)} of the log is empty: somebody is writing it just now, or was stopped before. "
                'When nobody is, put the line {"commitInfo":{}} into it.'
            )
        return actions

    def entries(self, versions: Iterable[int]) -> list[list[Action] | None]:
        """As :meth:`entry` of some versions, in their order."""
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="delta-log") as executor:
            return list(executor.map(self.entry, versions))

    def info(self, version: int) -> Mapping[str, Any] | None:
        """The ``commitInfo`` of an entry: who made it, and how; empty when it has none, otherwise as :meth:`entry`."""
        first = self._read(version, whole=False)
        if first is not None and not any("commitInfo" in action for action in first):
            first = self.entry(version)
        if first is None:
            return None
        return next((action["commitInfo"] or {} for action in first if "commitInfo" in action), {})

    def infos(self, versions: Iterable[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """As :meth:`info` of some versions in their order, as far as they are asked for; without those that are not there."""
        waiting = list(versions)
        size = 1  # often the first one is all that is asked for
        with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="delta-log") as executor:
            while waiting:
                group, waiting = waiting[:size], waiting[size:]
                size = min(2 * size, _TOGETHER)
                for version, info in zip(group, executor.map(self.info, group), strict=True):
                    if info is not None:
                        yield version, info

    def put(self, version: int, actions: Sequence[Action]) -> bool:
        """Make an entry, whole or not at all; False when somebody has made one of that number, maybe this call itself.

        :raises CommitRejectedError: when it surely was not made.
        :raises CommitUnknownError: when the answer was lost.
        :raises UnsupportedError: when the store has no way to write what is not there yet; nothing was written then.
        """
        text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
        return put_if_absent(self.uri(version), text.encode())

    def _names(self) -> list[str]:
        """What lies in the folder itself: below it others keep parts of checkpoints, or a copy of the log."""
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
    """The versions that files of a kind are of, ascending."""
    return sorted({int(match[1]) for match in map(pattern.fullmatch, names) if match})


def _whole_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """The files of each checkpoint by its version, ascending; none of one that a writer has not ended, which nobody reads."""
    found: dict[tuple[int, int], list[str]] = {}
    for match in filter(None, map(_CHECKPOINT.fullmatch, names)):
        found.setdefault((int(match[1]), int(match[2] or 0)), []).append(match[0])
    return {version: files for (version, parts), files in sorted(found.items()) if len(files) == (parts or len(files))}
