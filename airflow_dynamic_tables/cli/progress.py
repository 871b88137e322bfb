"""Progress of a long command on stderr: one line for each step with its seconds, and a spinner on a terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status


class Progress:
    """Steps one after the other; a context manager that ends the last one."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._running: tuple[str, float, Status] | None = None

    def step(self, name: str) -> None:
        """End the running step and start another."""
        self._end("")
        status = self._console.status(f"{name} …")
        status.start()
        self._running = name, time.monotonic(), status

    def line(self, text: str) -> None:
        """Print a line of what is going on, above the spinner."""
        self._console.print(text, soft_wrap=True)

    def _end(self, how: str) -> None:
        if self._running is None:
            return
        name, since, status = self._running
        self._running = None
        status.stop()
        self._console.print(f"{name} {time.monotonic() - since:.1f} s{how}", soft_wrap=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(" (failed)" if kind else "")
