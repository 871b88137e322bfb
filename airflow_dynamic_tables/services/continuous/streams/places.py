"""The state of a stream beside its table, and the check that Spark's checkpoint and the table agree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.clients.files import delete_folder, exists, list_entries, read_text, write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schema import PATTERN_SIGNS
from airflow_dynamic_tables.core.streaming.stream_plans import NO_PROGRESS, WORKER_FILE, Answer, StreamProgress
from airflow_dynamic_tables.core.versions import StreamPosition
from airflow_dynamic_tables.services.workspace import Workspace

STREAMS = "_streams"
"""Folder inside a table's folder. Spark, Hive and Iceberg do not read it as data, and it is not an orphan."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream of a table.

    ``recipe`` is a digest of everything that determines its result; ``run`` is the name of its last job. ``first`` is the batch
    that created its first version, or was about to; ``None`` before.
    """

    name: str
    recipe: str
    run: str
    first: int | None = None


class Place:
    """The folder of the streams of a table.

    :param folder: the folder of the table, without a trailing slash.
    """

    def __init__(self, folder: str) -> None:
        self.folder = f"{folder}/{STREAMS}"

    def current(self) -> Stream | None:
        """Return the stream of the table; ``None`` if there is none, or its record is damaged."""
        try:
            return from_plain(Stream, json.loads(read_text(self._record)))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, stream: Stream) -> None:
        """Record a stream as that of the table."""
        write_text(self._record, json.dumps(to_plain(stream)))

    def why_new(self, recipe: str, position: StreamPosition | None) -> str:
        """Return why the stream cannot continue and a new one has to start; empty if it can."""
        known = self.current()
        return "there was none" if known is None else self._why_not(known, recipe, position)

    def open(self, recipe: str, position: StreamPosition | None) -> tuple[Stream, str]:
        """Return the stream to continue, or a new one.

        :return: the stream, and why it is new; empty if it continues.
        """
        known = self.current()
        why = self.why_new(recipe, position)
        run = uuid4().hex[:8]
        stream = Stream(uuid4().hex, recipe, run) if known is None or why else replace(known, run=run)
        self.write(stream)
        if known is not None:
            self._leave(known, stream)
        return stream, why

    def _leave(self, known: Stream, stream: Stream) -> None:
        """Stop a job whose worker has ended, and delete the state of a replaced stream."""
        if exists(f"{self.run_of(known)}/{WORKER_FILE}"):
            write_text(f"{self.run_of(known)}/{WORKER_FILE}", Answer(beat=-1, stop=True).to_json())
        if known.name != stream.name:
            delete_folder(self.folder, self.of(known))

    def forget(self) -> None:
        """Make the next job start a new stream."""
        if (known := self.current()) is not None:
            self.write(replace(known, recipe=""))

    def close(self, stream: Stream) -> None:
        """Delete the messages of a job and its worker after both have ended."""
        delete_folder(self.folder, self.run_of(stream))

    def of(self, stream: Stream) -> str:
        """Return the folder of a stream."""
        return f"{self.folder}/{stream.name}"

    def run_of(self, stream: Stream) -> str:
        """Return the folder in which a job and its worker communicate."""
        return f"{self.of(stream)}/run-{stream.run}"

    def checkpoint(self, stream: Stream) -> str:
        """Return the folder of Spark's checkpoint."""
        return f"{self.of(stream)}/checkpoint"

    def has_begun(self, stream: Stream) -> bool:
        """Return whether Spark has recorded the input of a batch."""
        return bool(self._offsets(stream))

    def noted(self, stream: Stream, batch: int) -> str:
        """Return Spark's records of the files read up to a batch, or of the last of them, as text with their URIs."""
        _, _, *offsets = read_text(f"{self.checkpoint(stream)}/offsets/{batch}").splitlines()
        noted: list[str] = []
        for number, line in enumerate(offsets):
            offset = json.loads(line) if line.startswith("{") else {}
            last = offset.get("logOffset")
            for name in (f"{last}", f"{last}.compact") if last is not None else ():
                with suppress(FileNotFoundError):
                    noted.append(read_text(f"{self.checkpoint(stream)}/sources/{number}/{name}"))
        return "\n".join(noted)

    def feeds(self, stream: Stream) -> str:
        """Return the folder of the feeds of its tables, with a folder for each view."""
        return f"{self.of(stream)}/feeds"

    def progress_file(self, stream: Stream) -> str:
        """Return the file in which a job records its progress."""
        return f"{self.of(stream)}/progress.json"

    def progress(self, stream: Stream) -> StreamProgress:
        """Return the progress of a stream, as last recorded by its job."""
        try:
            return StreamProgress.from_json(read_text(self.progress_file(stream)))
        except (FileNotFoundError, ValueError):
            return NO_PROGRESS

    @property
    def _record(self) -> str:
        return f"{self.folder}/stream.json"

    def _why_not(self, known: Stream, recipe: str, position: StreamPosition | None) -> str:
        """Return why a stream cannot continue; empty if it can."""
        if known.recipe != recipe:
            return "the definition changed, or the last stream was given up"
        offsets = self._offsets(known)
        if position is None or position.stream != known.name:
            has_more = known.first is not None and max(offsets, default=0) > known.first
            return "another writer changed the table" if has_more else ""
        if not _agrees(offsets, position):
            return "Spark's checkpoint is gone, or older than the table"
        return ""

    def _offsets(self, stream: Stream) -> Mapping[int, str]:
        folder = f"{self.checkpoint(stream)}/offsets"
        names = (entry.path.rpartition("/")[2] for entry in list_entries(folder))
        return {int(name): f"{folder}/{name}" for name in names if name.isdecimal()}


def _agrees(offsets: Mapping[int, str], position: StreamPosition) -> bool:
    """Return whether the checkpoint has exactly the batch of the table's last version, or only later ones if that has expired."""
    if position.batch in offsets:
        text = read_text(offsets[position.batch])
        return hashlib.sha256(text.encode()).hexdigest() == position.offsets
    return bool(offsets) and min(offsets) > position.batch


def named_like_a_pattern(noted: str) -> str | None:
    """Return a file among Spark's records with glob characters in its name; ``None`` if there is none.

    Spark 4.2 reads all files of a batch once more for each such file (SPARK-58518).
    """
    files = (unquote(str(json.loads(line).get("path", ""))) for line in noted.splitlines() if line.startswith("{"))
    return next((file for file in files if not PATTERN_SIGNS.isdisjoint(file)), None)


def stream_progress(workspace: Workspace, identifier: TableIdentifier) -> StreamProgress | None:
    """Return the progress of the stream of a table; ``None`` if it has none, or its first batch is in progress.

    :raises TableNotFoundError: if the catalog does not have the table.
    """
    entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    folder = None if isinstance(entry, CatalogView) else workspace.table(identifier, entry.format).folder()
    if folder is None:
        return None
    place = Place(folder)
    stream = place.current()
    progress = place.progress(stream) if stream is not None else NO_PROGRESS
    return None if progress == NO_PROGRESS else progress
