"""What is kept of a stream beside its table: which one it is, and whether Spark's checkpoint and the table agree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import unquote
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.clients.deleting import delete_folder
from airflow_dynamic_tables.clients.files import exists, list_entries, read_text, write_text
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.streaming.streams import NO_PROGRESS, WORKER_FILE, Answer, Progress
from airflow_dynamic_tables.core.tables.data_files import PATTERN_SIGNS
from airflow_dynamic_tables.core.tables.versions import StreamPosition
from airflow_dynamic_tables.services.workspace import Workspace

STREAMS = "_streams"
"""Folder in that of a table; what lies in it is no data to Spark, Hive and Iceberg, and nobody's orphan."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream of a table.

    ``recipe`` is a digest of what decides what it returns, ``run`` names the last job of it. ``first`` is the batch that made
    its first version, or was about to; ``None`` before.
    """

    name: str
    recipe: str
    run: str
    first: int | None = None


class Place:
    """The folder of the streams of a table.

    :param folder: that of the table, without a slash at the end.
    """

    def __init__(self, folder: str) -> None:
        self.folder = f"{folder}/{STREAMS}"

    def current(self) -> Stream | None:
        """The stream that the table has; ``None`` when it has none, or what is written of it is damaged."""
        try:
            return from_plain(Stream, json.loads(read_text(self._record)))
        except (FileNotFoundError, ValueError):
            return None

    def write(self, stream: Stream) -> None:
        """Make a stream that of the table."""
        write_text(self._record, json.dumps(to_plain(stream)))

    def why_new(self, recipe: str, position: StreamPosition | None) -> str:
        """Why no stream can go on, so that a new one has to begin; empty when one can.

        :param position: how far the table is of a stream.
        """
        known = self.current()
        return "there was none" if known is None else self._why_not(known, recipe, position)

    def open(self, recipe: str, position: StreamPosition | None) -> tuple[Stream, str]:
        """The stream that goes on, or a new one.

        :param position: how far the table is of a stream.
        :return: it, and why it is new; empty when it goes on.
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
        """Stop a job whose worker died, and delete what a stream left that another one takes the place of."""
        if exists(f"{self.run_of(known)}/{WORKER_FILE}"):
            write_text(f"{self.run_of(known)}/{WORKER_FILE}", Answer(beat=-1, stop=True).to_json())
        if known.name != stream.name:
            delete_folder(self.folder, self.of(known))

    def forget(self) -> None:
        """Let the next job begin a new stream."""
        if (known := self.current()) is not None:
            self.write(replace(known, recipe=""))

    def close(self, stream: Stream) -> None:
        """Delete what a job and its worker said, once both have ended."""
        delete_folder(self.folder, self.run_of(stream))

    def of(self, stream: Stream) -> str:
        """The folder of a stream."""
        return f"{self.folder}/{stream.name}"

    def run_of(self, stream: Stream) -> str:
        """The folder in which a job and its worker talk."""
        return f"{self.of(stream)}/run-{stream.run}"

    def checkpoint(self, stream: Stream) -> str:
        """Where Spark keeps what it remembers between batches."""
        return f"{self.of(stream)}/checkpoint"

    def has_begun(self, stream: Stream) -> bool:
        """Whether Spark has noted what a batch of it reads."""
        return bool(self._offsets(stream))

    def noted(self, stream: Stream, batch: int) -> str:
        """What Spark has noted of the files that it read up to a batch, or of the last of them; text with their URIs."""
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
        """Where the feeds of its tables lie, in a folder for each view."""
        return f"{self.of(stream)}/feeds"

    def progress_file(self, stream: Stream) -> str:
        """Where a job tells how far it is."""
        return f"{self.of(stream)}/progress.json"

    def progress(self, stream: Stream) -> Progress:
        """How far a stream is, as its job told last."""
        try:
            return Progress.from_json(read_text(self.progress_file(stream)))
        except (FileNotFoundError, ValueError):
            return NO_PROGRESS

    @property
    def _record(self) -> str:
        return f"{self.folder}/stream.json"

    def _why_not(self, known: Stream, recipe: str, position: StreamPosition | None) -> str:
        """Why a stream cannot go on; empty when it can."""
        if known.recipe != recipe:
            return "the definition changed, or the last stream was given up"
        offsets = self._offsets(known)
        if position is None or position.stream != known.name:
            has_more = known.first is not None and max(offsets, default=0) > known.first
            return "something else than the stream changed the table" if has_more else ""
        if not _agrees(offsets, position):
            return "Spark's checkpoint is gone, or older than the table"
        return ""

    def _offsets(self, stream: Stream) -> Mapping[int, str]:
        """The files in which Spark noted what each batch reads, by number of the batch."""
        folder = f"{self.checkpoint(stream)}/offsets"
        names = (entry.path.rpartition("/")[2] for entry in list_entries(folder))
        return {int(name): f"{folder}/{name}" for name in names if name.isdecimal()}


def _agrees(offsets: Mapping[int, str], position: StreamPosition) -> bool:
    """Whether Spark remembers the very batch that made the table's last version, or only later ones: it forgets old ones."""
    if position.batch in offsets:
        text = read_text(offsets[position.batch])
        return hashlib.sha256(text.encode()).hexdigest() == position.offsets
    return bool(offsets) and min(offsets) > position.batch


def named_like_a_pattern(noted: str) -> str | None:
    """A file that has signs of a pattern in its name, of those that Spark has noted; ``None`` when none has.

    Spark 4.2 reads all files of a batch once more for each such file (SPARK-58518).
    """
    files = (unquote(str(json.loads(line).get("path", ""))) for line in noted.splitlines() if line.startswith("{"))
    return next((file for file in files if not PATTERN_SIGNS.isdisjoint(file)), None)


def stream_progress(workspace: Workspace, identifier: TableIdentifier) -> Progress | None:
    """How far the stream of a table has come; ``None`` when it has none, or its first batch is under way.

    :raises TableNotFoundError: when the catalog does not have the table.
    """
    entry = workspace.readable(identifier.catalog).get_table(identifier.path)
    folder = None if isinstance(entry, CatalogView) else workspace.table(identifier, entry.format).folder()
    if folder is None:
        return None
    place = Place(folder)
    stream = place.current()
    progress = place.progress(stream) if stream is not None else NO_PROGRESS
    return None if progress == NO_PROGRESS else progress
