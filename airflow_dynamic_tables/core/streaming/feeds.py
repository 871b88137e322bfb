"""Feeds: what is new in a table, number by number, between the worker that finds it and the job that streams it.

Each feed of a source has a folder, ``<number>-<run>``: the worker of that run writes :data:`FEED_FILE` into it, the job of the
run copies the rows into :data:`ROWS`. Whether a feed counts, and which run's, stands in one place: a log of files in the format
of Spark's file sink, of which each entry is complete in itself and the newest one is read. Entries are never written twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

FEED_FILE = "feed.json"
ROWS = "rows"
LOG = "_spark_metadata"
"""Where Spark looks for the list of the files of a folder."""

_VERSION = "v1"
_SUFFIX = ".compact"
"""Of entries that need no other one to be read; with this setting Spark expects all of them to be so:"""

LOG_SETTINGS = {"spark.sql.streaming.fileSink.log.compactInterval": "1"}


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A file of a feed: its URI as Hadoop writes it, with signs escaped, and its size in bytes."""

    uri: str
    bytes: int
    number: int

    @property
    def folder(self) -> str:
        """The folder of the feed that it is of."""
        return unquote(self.uri).split("/")[-3]


def folder_name(number: int, run: str) -> str:
    """The folder of a feed, below that of its source."""
    return f"{number}-{run}"


def number_of(folder: str) -> int | None:
    """The number of the feed that a folder is of; ``None`` when it is of none."""
    number, dash, _ = folder.partition("-")
    return int(number) if dash and number.isdecimal() and "/" not in folder else None


def entry_name(number: int) -> str:
    """The name of the entry of a feed in the log."""
    return f"{number}{_SUFFIX}"


def newest(names: Iterable[str]) -> int | None:
    """The number of the newest feed that counts, by the names of what lies in the log; ``None`` when there is none."""
    numbers = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


def write_entry(files: Sequence[LoggedFile]) -> str:
    """An entry of the log: the files that Spark shall know, oldest first. It reads those that it has not read yet."""
    return "\n".join([_VERSION, *(json.dumps(_status(file)) for file in files)])


def read_entry(text: str) -> tuple[LoggedFile, ...]:
    """The files of an entry.

    :raises ValueError: when it is none, or not whole.
    """
    version, *lines = text.splitlines()
    if version != _VERSION or not lines:
        raise ValueError("not an entry of a log of feeds")
    try:
        told = [json.loads(line) for line in lines]
        return tuple(LoggedFile(str(one["path"]), int(one["size"]), int(one["modificationTime"])) for one in told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an entry of a log of feeds: {error}") from error


def _status(file: LoggedFile) -> dict[str, object]:
    # Spark leaves out what is much older than the newest file; so the time is the number of the feed.
    return {
        "path": file.uri,
        "size": file.bytes,
        "isDir": False,
        "modificationTime": file.number,
        "blockReplication": 1,
        "blockSize": max(file.bytes, 1),
        "action": "add",
    }
