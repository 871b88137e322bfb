"""The streaming strategy: a job runs across turns, and each of its batches is committed as an ordinary refresh.

The job never modifies the table. It writes a batch into the stage of a refresh and continues only after that has landed, so that
Spark's checkpoint follows the table. After an interruption it repeats its last batch; the table itself records its position.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from airflow_dynamic_tables.catalog.values import Asked
from airflow_dynamic_tables.clients.files import exists
from airflow_dynamic_tables.core.formats import endless_format
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.reasons import ReasonCode
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.streaming.stream_plans import Ask, StreamSettings
from airflow_dynamic_tables.core.versions import StreamPosition
from airflow_dynamic_tables.exceptions import CommitRejectedError, ConflictError, OvertakenError, UnsupportedError
from airflow_dynamic_tables.formats.base import LoadedTable
from airflow_dynamic_tables.services.continuous.base import TurnOutcome, Work
from airflow_dynamic_tables.services.continuous.streams.feeds import FeedPlace, StreamFeeds, TableFeeds, look_of
from airflow_dynamic_tables.services.continuous.streams.jobs import PATIENCE, StreamJob, recipe_of, stream_plan, wait_until
from airflow_dynamic_tables.services.continuous.streams.places import Place, Stream, named_like_a_pattern
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest, Skipped, StreamBatch
from airflow_dynamic_tables.services.refresh.running import run

_LONGEST_TURN = 10.0
"""Seconds for which a turn waits for a batch; between two turns the loop checks whether to continue."""

_POLL = 0.1
"""Seconds between two checks for a request of the job."""

log = logging.getLogger(__name__)


class Streaming:
    """A streaming job whose batches are committed one by one."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._place: Place
        self._stream: Stream
        self._feeds = StreamFeeds({})
        self._job: StreamJob | None = None

    def turn(self, number: int) -> TurnOutcome:  # noqa: ARG002 - a stream counts batches
        """Commit the next batch, or wait for it for a while."""
        job = self._job or self._start()
        until = time.monotonic() + _LONGEST_TURN
        try:
            job.check()
            while (why := self._feeds.turn()) or (asked := job.asked()) is None:
                if why:
                    return self._restart(why)
                job.check()
                if time.monotonic() > until:
                    return TurnOutcome(reason="the stream has no new batch", more=True)
                job.wait(_POLL)
            return self._commit(job, asked)
        except CommitRejectedError:
            self._end(at_once=True)
            raise
        except ConflictError:
            raise  # a refresh by hand is running: the job waits
        except BaseException:
            self._end(at_once=True)
            raise

    def close(self) -> None:
        """End the job after its current batch, which is not committed; the next job starts with it."""
        if self._job is not None:
            self._end()
            self._place.close(self._stream)

    def _start(self) -> StreamJob:
        work = self.work
        plan = stream_plan(work.workspace, work.table, work.sources)
        table = _made(work)
        folder = table.folder()
        if folder is None:
            raise CommitRejectedError(f"{work.table.identifier} was dropped just now.")
        self._place = Place(folder)
        recipe = recipe_of(plan)
        position = table.position()
        _check_kept(plan, table, self._place.why_new(recipe, position))
        self._stream, why = self._place.open(recipe, position)
        if why:
            log.info("Stream %s of %s begins from nothing: %s.", self._stream.name, work.table.identifier, why)
        settings = StreamSettings(
            stream=self._stream.name,
            checkpoint=self._place.checkpoint(self._stream),
            progress=self._place.progress_file(self._stream),
            feeds=self._place.feeds(self._stream),
            interval=self._interval,
            patience=PATIENCE,
        )
        planned = replace(plan, token=self._stream.run, stage=self._place.run_of(self._stream), stream=settings)
        self._feeds = self._feeds_of(planned)
        job = StreamJob(planned, work.submit, work.stop_job, self._is_current)
        job.start(private=work.workspace.settings.private_files)
        self._job = job
        return job

    def _feeds_of(self, plan: RefreshPlan) -> StreamFeeds:
        work = self.work
        by_view: dict[str, TableFeeds] = {}
        whole: set[str] = set()
        for source in plan.sources:
            identifier = TableIdentifier.parse(source.identifier)
            declared = work.sources.get(identifier)
            look = look_of(work.workspace, work.table, identifier, declared, source.view) if source.is_fed else None
            if look is not None:
                mark = declared.watermark if declared is not None else None
                pause = mark.monitor_interval if mark is not None else None
                interval = pause.total_seconds() if pause is not None else self._interval
                folder = f"{self._place.feeds(self._stream)}/{source.view}"
                private = work.workspace.settings.private_files
                place = FeedPlace(folder, self._stream.run, self._place.has_begun(self._stream), private)
                by_view[source.view] = TableFeeds(source.identifier, place, look, interval, work.workspace.now)
                whole |= {source.view} if mark is not None else set()
        return StreamFeeds(by_view, whole)

    @property
    def _interval(self) -> float:
        """Seconds between two batches: half of the freshness, at least one second."""
        return max(1.0, self.work.table.freshness.seconds / 2)

    def _is_current(self) -> bool:
        known = self._place.current()
        return known is None or known.run == self._stream.run

    def _commit(self, job: StreamJob, asked: Ask) -> TurnOutcome:
        """Commit a batch and answer the job; only answer it if the table already has the batch."""
        trace(Step.ASKED, self._stream.name)
        what = f"batch {asked.batch} of stream {self._stream.name}"
        position = StreamPosition(self._stream.name, asked.batch, asked.offsets)
        now = self.work.workspace.table(self.work.table.identifier, self.work.table.format).position()
        if now == position:
            job.say(batch=asked.batch, plan=None, is_done=True)
            return TurnOutcome(reason=f"the table has {what} already", more=True)
        follows = now if now is not None and now.stream == self._stream.name else None
        if follows is not None and follows.batch >= asked.batch:
            return self._restart(f"{what} is older than what the table has of it")
        if follows is None and not self._is_first(asked.batch):
            return self._restart("another writer changed the table")
        request = self._request(asked, StreamBatch(job.plan, position, follows))
        outcome = run(self.work.workspace, request, self._written, self.work.stop_job)
        if isinstance(outcome, Skipped):
            return self._skipped(job, asked, outcome)
        job.say(batch=asked.batch, plan=None, is_done=True)
        trace(Step.ANSWERED, self._stream.name)
        return TurnOutcome((outcome,), more=True)

    def _is_first(self, batch: int) -> bool:
        """Return whether a batch may create the first version of its stream. This is recorded before anything is done."""
        if self._stream.first is None:
            self._note_first(batch)
        return self._stream.first == batch

    def _note_first(self, batch: int | None) -> None:
        self._stream = replace(self._stream, first=batch)
        self._place.write(self._stream)

    def _request(self, asked: Ask, batch: StreamBatch) -> RefreshRequest:
        work = self.work
        # Spark records the time after listing files, so a file that arrived in between may be missing.
        time_read = work.workspace.now() - timedelta(seconds=asked.age + self._interval)
        noted = self._place.noted(self._stream, asked.batch)
        if file := named_like_a_pattern(noted):
            self._place.forget()  # a new stream is required, because this one would read the recorded files again
            signs = "has signs of a pattern in its name ({}[]*?\\)"
            raise UnsupportedError(f"{file} {signs}, and Spark's streams read other files twice then; rename it.")
        read = self._feeds.read_by(noted, time_read)
        return RefreshRequest(
            table=work.table,
            sources=work.sources,
            schedule_time=min([time_read, *(feed.seen_at for feed in read.values())]).replace(microsecond=0),
            token=str(uuid4()),
            owner=work.owner,
            is_reported=True,
            batch=replace(batch, plan=self._feeds.bound(batch.plan, read)),
        )

    def _written(self, plan: RefreshPlan) -> None:
        job = self._job
        if job is None or plan.position is None:
            raise CommitRejectedError("The streaming job has ended.")
        job.say(batch=plan.position.batch, plan=plan.plan_location, is_done=False)
        wait_until(lambda: exists(plan.result_location), job)

    def _skipped(self, job: StreamJob, asked: Ask, skipped: Skipped) -> TurnOutcome:
        match skipped.reason.code:
            case ReasonCode.SUSPENDED:
                return TurnOutcome(reason=str(skipped.reason))  # the job waits
            case ReasonCode.NOTHING_TO_REFRESH:
                if self._stream.first == asked.batch:
                    self._note_first(None)
                job.say(batch=asked.batch, plan=None, is_done=True)
                return TurnOutcome(reason=str(skipped.reason), more=True)
        self._place.forget()  # a new stream reads the sources as they are then
        raise OvertakenError(str(skipped.reason))

    def _restart(self, why: str) -> TurnOutcome:
        """Give the stream up. The next turn starts a new one, which replaces the table with all rows of the sources."""
        log.warning("Stream %s of %s is given up: %s.", self._stream.name, self.work.table.identifier, why)
        self._place.forget()
        self._end(at_once=True)
        return TurnOutcome(reason=why, more=True)

    def _end(self, *, at_once: bool = False) -> None:
        if self._job is not None:
            job = self._job
            self._job = None
            job.end(at_once=at_once)


def _made(work: Work) -> LoadedTable:
    """Return the table, which is created if necessary, so that it has a folder."""
    ensure(work.workspace, work.table, Asked.FORCED_REFRESH)
    table = work.workspace.table(work.table.identifier, work.table.format, work.table.atomicity)
    table.stage("stream").begin()
    return table.load()


def _check_kept(plan: RefreshPlan, table: LoadedTable, why: str) -> None:
    """Check that a new stream would read all rows of the table again.

    :param why: why a new stream is required; empty if none is.
    :raises UnsupportedError: if a source may no longer have some of them.
    """
    if not why or table.current() is None:
        return
    for source in plan.sources:
        endless = endless_format(source.format)
        if endless is not None and endless.forgets:
            raise UnsupportedError(
                f"The stream of {plan.identifier} cannot go on: {why}. A new one would replace all rows by what "
                f"{source.identifier} still has; to have that, drop the table, or give it another name."
            )
