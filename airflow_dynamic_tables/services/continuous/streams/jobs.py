"""A streaming job from the side of its worker: started, heard, answered and stopped."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_dynamic_tables.clients.files import read_text, write_text
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.streaming.streams import JOB_FILE, WORKER_FILE, Answer, Ask
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, ConflictError, JobFailedError

BEAT = 2.0
"""Seconds between two signs of life of the worker."""

PATIENCE = 60.0
"""Seconds after which a job whose worker gives no sign of life ends by itself."""

_GRACE = 60.0
"""Seconds that a job has to end by itself after the batch at which it is."""

log = logging.getLogger(__name__)


class StreamJob:
    """One run of a streaming job, in a thread of its own.

    :param plan: says where both talk, too: its ``stage``.
    :param submit: runs the job of a plan to its end.
    :param kill: ends it at once; may be called from any thread.
    :param is_current: whether no other worker has taken the stream over.
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
        """Start it.

        :param private: the plan is for its owner only.
        """
        write_text(self.plan.plan_location, self.plan.to_json(), private=private)
        self.say()
        for name, target in (("job", self._run), ("beat", self._beat)):
            # With the context of this thread: by it Airflow knows that its operators run within a task.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(target,), name=f"stream-{name}-{self.plan.token}", daemon=True).start()

    def asked(self) -> Ask | None:
        """The batch that the job asks for and that has no answer yet."""
        try:
            asked = Ask.from_json(read_text(f"{self.plan.stage}/{JOB_FILE}"))
        except (FileNotFoundError, ValueError):
            return None
        return None if self._said.batch == asked.batch and self._said.is_done else asked

    def say(self, **changes: Any) -> None:
        """Tell the job something, and that somebody lives who does; see :class:`Answer`."""
        with self._saying:
            self._said = replace(self._said, beat=self._said.beat + 1, **changes)
            write_text(f"{self.plan.stage}/{WORKER_FILE}", self._said.to_json())

    def check(self) -> None:
        """Check that it runs.

        :raises JobFailedError: when it ended.
        :raises ConflictError: when another worker took the stream over.
        """
        if self._taken:
            raise ConflictError(f"Another worker has taken over the stream of {self.plan.identifier}.")
        if self._over.is_set():
            raise self._error or JobFailedError(f"The streaming job of {self.plan.identifier} ended by itself.")

    def wait(self, seconds: float) -> None:
        """Wait a while, or until it has ended."""
        self._over.wait(seconds)

    def end(self, *, at_once: bool = False) -> None:
        """Let it end, after the batch at which it is unless it has to be at once; what goes wrong with that is only told."""
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
    """Wait until something that the job does is there.

    :raises JobFailedError: when the job ended before; see :meth:`StreamJob.check`.
    """
    pause = 0.05
    while not condition():
        job.check()
        time.sleep(pause)
        pause = min(pause * 1.2, 1.0)
