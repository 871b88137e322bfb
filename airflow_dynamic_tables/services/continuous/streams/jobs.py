"""The plan and the job of a stream."""

from __future__ import annotations

import contextvars
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_dynamic_tables.clients.files import read_text, write_text
from airflow_dynamic_tables.core.formats import endless_format, streamed_formats
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, SourceBinding
from airflow_dynamic_tables.core.refresh.reasons import RefreshAction
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.stream_plans import JOB_FILE, WORKER_FILE, Answer, Ask
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, JobFailedError, UnsupportedError
from airflow_dynamic_tables.services.continuous.streams.feeds import INSTEAD, stream_source
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.planning import bind_query, view_name
from airflow_dynamic_tables.services.workspace import Workspace

_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""The plan of a stream has no schedule time; those of its batches have one."""


def stream_plan(workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source]) -> RefreshPlan:
    """Return the plan of a stream, without the location of its run and its batches.

    :raises UnsupportedError: if a stream cannot refresh the table; the message contains the reason and the remedy.
    """
    _check(workspace, table)
    inlined = inline_views(workspace, table, sources)
    bindings = tuple(
        stream_source(workspace, inlined, identifier, sources.get(identifier), view_name(inlined, number))
        for number, identifier in enumerate(inlined.upstream)
    )
    if not bindings:
        raise UnsupportedError(f"{table.identifier} reads no source, so there is nothing to stream; {INSTEAD}.")
    why = (RefreshAction.ADD, "a stream")
    return bind_query(workspace, inlined, bindings).plan("", _NO_TIME, why, workspace.settings.allowed)


def recipe_of(plan: RefreshPlan) -> str:
    """Return a digest of everything that determines the result of a stream. If it changes, the checkpoint is invalid."""
    decisive = replace(plan, comment=None, comments={}, statement="", sources=tuple(map(_untuned, plan.sources)))
    return hashlib.sha256(json.dumps(to_plain(decisive), sort_keys=True).encode()).hexdigest()


def _untuned(source: SourceBinding) -> SourceBinding:
    endless = endless_format(source.format)
    tuning = endless.tuning if endless is not None else ()
    return replace(source, options={option: value for option, value in source.options.items() if option not in tuning})


def _check(workspace: Workspace, table: DynamicTable) -> None:
    """Check the restrictions of streams that do not depend on the query.

    :raises UnsupportedError: if one is violated.
    """
    name = table.identifier
    if not workspace.table(name, table.format, table.atomicity).can_add:
        fitting = " or ".join(streamed_formats())
        raise UnsupportedError(f"{name}: a stream adds rows in one step, which format {table.format} cannot; make it {fitting}.")
    if unique := [expected.name for expected in table.expectations if expected.unique]:
        raise UnsupportedError(f"{name}: a stream sees one batch at a time, so it cannot check {unique[0]!r}; {INSTEAD}.")
    if related := [expected.name for expected in table.expectations if expected.relationship is not None]:
        raise UnsupportedError(
            f"{name}: the job of a stream reads the versions of its start, so it cannot check {related[0]!r}; {INSTEAD}."
        )
    if table.row_counts:
        raise UnsupportedError(f"{name}: rows of a stream come in batches of any size, so 'row_count' says nothing; {INSTEAD}.")


BEAT = 2.0
"""Seconds between two heartbeats of the worker."""

PATIENCE = 60.0
"""Seconds without a heartbeat of the worker after which a job ends itself."""

_GRACE = 60.0
"""Seconds for a job to end itself after its current batch."""

log = logging.getLogger(__name__)


class StreamJob:
    """One run of a streaming job, in its own thread.

    :param plan: its ``stage`` is the folder in which job and worker communicate.
    :param kill: ends the job immediately; may be called from any thread.
    :param is_current: returns whether no other worker has taken the stream over.
    """

    def __init__(
        self,
        plan: RefreshPlan,
        submit: Callable[[RefreshPlan], object],
        kill: Callable[[], None],
        is_current: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self._submit = submit
        self._kill = kill
        self._is_current = is_current
        self._said = Answer()
        self._saying = threading.Lock()
        self._over = threading.Event()
        self._error: Exception | None = None
        self._taken = False

    def start(self, *, private: bool) -> None:
        """Start the job.

        :param private: only the owner may read the plan.
        """
        write_text(self.plan.plan_location, self.plan.to_json(), private=private)
        self.say()
        for name, target in (("job", self._run), ("beat", self._beat)):
            # The context of this thread tells Airflow that its operators run within a task.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(target,), name=f"stream-{name}-{self.plan.token}", daemon=True).start()

    def asked(self) -> Ask | None:
        """Return the batch that the job asks for, if it has not been answered yet."""
        try:
            asked = Ask.from_json(read_text(f"{self.plan.stage}/{JOB_FILE}"))
        except (FileNotFoundError, ValueError):
            return None
        return None if self._said.batch == asked.batch and self._said.is_done else asked

    def say(self, **changes: Any) -> None:
        """Send an answer to the job, which is also a heartbeat; see :class:`Answer`."""
        with self._saying:
            self._said = replace(self._said, beat=self._said.beat + 1, **changes)
            write_text(f"{self.plan.stage}/{WORKER_FILE}", self._said.to_json())

    def check(self) -> None:
        """Check that the job is running.

        :raises JobFailedError: if it ended.
        :raises ConflictError: if another worker took the stream over.
        """
        if self._taken:
            raise ConflictError(f"Another worker has taken over the stream of {self.plan.identifier}.")
        if self._over.is_set():
            raise self._error or JobFailedError(f"The streaming job of {self.plan.identifier} ended by itself.")

    def wait(self, seconds: float) -> None:
        """Wait for some seconds, or until the job has ended."""
        self._over.wait(seconds)

    def end(self, *, at_once: bool = False) -> None:
        """End the job after its current batch, or immediately; errors in sending this are only logged."""
        try:
            self.say(stop=True)
        except CatalogUnavailableError:
            log.exception("Could not tell the streaming job of %s to end.", self.plan.identifier)
        if at_once or not self._over.wait(_GRACE):
            self._kill()
            self._over.wait(_GRACE)

    def _run(self) -> None:
        try:
            self._submit(self.plan)
        except Exception as error:
            self._error = error
        finally:
            self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            try:
                self._taken = self._taken or not self._is_current()
                self.say(**({"stop": True} if self._taken else {}))
            except Exception:
                log.exception("Could not tell the streaming job of %s that its worker lives.", self.plan.identifier)


def wait_until(condition: Callable[[], bool], job: StreamJob) -> None:
    """Wait for a result of the job.

    :raises JobFailedError: if the job ended before; see :meth:`StreamJob.check`.
    """
    pause = 0.05
    while not condition():
        job.check()
        time.sleep(pause)
        pause = min(pause * 1.2, 1.0)
