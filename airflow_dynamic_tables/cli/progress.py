"""What a command is doing, on one line of the terminal while it does it."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.live import Live

_T = TypeVar("_T")

_TASKS = re.compile(r"Spark: (\d+ of \d+) tasks are done")
_RUNNING = re.compile(r"Spark application \S+ of ")


class Progress:
    """Shows the step that runs, with a spinner, and removes it when the step is over.

    Nothing is shown unless stderr is a terminal: logs and pipes get results and errors only.

    :param is_shown: ``False``: nothing is shown on a terminal either.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._steps: list[str] = []
        self._live: Live | None = None

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show what the body does, in place of the step around it. The body prints nothing on stdout."""
        self._steps.append(text)
        self._show()
        try:
            yield
        finally:
            self._steps.pop()
            self._show()

    def say(self, text: str) -> None:
        """Show another text for the step that runs, if one does."""
        if self._steps:
            self._steps[-1] = text
            self._show()

    def each(self, items: Iterable[_T], text: str) -> Iterator[_T]:
        """The items, with a step while one is made."""
        iterator = iter(items)
        while True:
            with self.step(text):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def spark(self, line: str) -> None:
        """Take a line that a runner heard from Spark or the job, and show how far they are."""
        if tasks := _TASKS.fullmatch(line):
            self.say(f"Spark runs the query, {tasks[1]} tasks are done")
        elif _RUNNING.match(line):
            self.say("Spark runs the query")

    def _show(self) -> None:
        if not self._is_shown:
            return
        if not self._steps:
            if self._live is not None:
                self._live.stop()
                self._live = None
            return
        from rich.spinner import Spinner  # only here: most commands of a program or a pipe print without it

        spinner = Spinner("dots", f"{self._steps[-1]} …")
        if self._live is None:
            self._live = _live(spinner)
            self._live.start()
        else:
            self._live.update(spinner)


def _live(spinner: object) -> Live:
    """A line on stderr that removes itself. What is printed on stderr meanwhile comes above it; stdout is not touched."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return Live(spinner, console=console, refresh_per_second=8, transient=True, redirect_stdout=False)  # type: ignore[arg-type]


def progress_of(arguments: Namespace) -> Progress:
    """The progress of the command that the arguments are of; one that shows nothing where no command runs."""
    progress: Progress | None = getattr(arguments, "progress", None)
    return progress or Progress(is_shown=False)


def lines_of_spark(arguments: Namespace) -> Callable[[str], None]:
    """What takes the lines of a runner: with ``--debug`` they are printed, else they move the progress on."""
    if getattr(arguments, "debug", False):
        return lambda line: print(line, file=sys.stderr)
    return progress_of(arguments).spark
