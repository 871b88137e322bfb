"""Running a command: its progress on one line of the terminal, and its errors as one line and an exit code."""

from __future__ import annotations

import logging
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from airflow_dynamic_tables.exceptions import DefinitionError, DynamicTableError
from airflow_dynamic_tables.redaction import without_secrets

if TYPE_CHECKING:
    from rich.live import Live


_T = TypeVar("_T")

_TASKS = re.compile(r"Spark: (\d+ of \d+) tasks are done")
_RUNNING = re.compile(r"Spark application \S+ of ")


class Progress:
    """Shows the current step with a spinner, and removes it when the step is over.

    Nothing is shown unless stderr is a terminal, so logs and pipes contain results and errors only.

    :param is_shown: ``False`` disables it on a terminal, too.
    """

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._steps: list[str] = []
        self._live: Live | None = None

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show a step during the body, in place of the enclosing one. The body must not print to stdout."""
        self._steps.append(text)
        self._show()
        try:
            yield
        finally:
            self._steps.pop()
            self._show()

    def say(self, text: str) -> None:
        """Replace the text of the current step, if there is one."""
        if self._steps:
            self._steps[-1] = text
            self._show()

    def each(self, items: Iterable[_T], text: str) -> Iterator[_T]:
        """Iterate over the items, showing a step while the next item is computed."""
        iterator = iter(items)
        while True:
            with self.step(text):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def spark(self, line: str) -> None:
        """Update the progress by an output line of Spark or the job."""
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
        from rich.spinner import Spinner  # imported here, because most commands of programs and pipes never show progress

        spinner = Spinner("dots", f"{self._steps[-1]} …")
        if self._live is None:
            self._live = _live(spinner)
            self._live.start()
        else:
            self._live.update(spinner)


def _live(spinner: object) -> Live:
    """Return a transient line on stderr. Other output on stderr appears above it; stdout is not touched."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return Live(spinner, console=console, refresh_per_second=8, transient=True, redirect_stdout=False)  # type: ignore[arg-type]


def progress_of(arguments: Namespace) -> Progress:
    """Return the progress of the running command, or a hidden one if no command is running."""
    progress: Progress | None = getattr(arguments, "progress", None)
    return progress or Progress(is_shown=False)


def lines_of_spark(arguments: Namespace) -> Callable[[str], None]:
    """Return the consumer of a runner's output lines: with ``--debug`` they are printed, otherwise they update the progress."""
    if getattr(arguments, "debug", False):
        return lambda line: print(line, file=sys.stderr)
    return progress_of(arguments).spark


OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def execute(function: str, arguments: Namespace) -> int:
    """Call a command's function.

    :param function: dotted path, from :class:`~airflow_dynamic_tables.cli.command_index.Command`.
    :return: 0 on success, 1 if the definitions or the state are wrong, 130 after Ctrl-C.
    """
    try:
        arguments.progress = Progress(is_shown=getattr(arguments, "output", "table") == "table")
        module, _, name = function.rpartition(".")
        with arguments.progress.step("Starting"):
            command = getattr(import_module(module), name)
        code: int = command(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) exited. Python flushes stdout again at exit, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except DynamicTableError as error:
        _report(message(error), error, debug=arguments.debug)
        return FAILED
    except Exception as error:
        _report(f"{type(error).__name__}: {message(error)} (not expected; --debug shows where)", error, debug=arguments.debug)
        return FAILED


def message(error: Exception) -> str:
    """Return an error as one line; mistakes of definitions as one line each."""
    text = without_secrets(str(error))
    return text if isinstance(error, DefinitionError) else " ".join(text.split())


def _report(text: str, error: Exception, *, debug: bool) -> None:
    if debug:
        logging.getLogger(__name__).error("%s failed.", type(error).__name__, exc_info=error)
    print(text, file=sys.stderr)
