"""Running a command: load its function, and turn errors into one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from importlib import import_module

from airflow_dynamic_tables.cli.progress import Progress
from airflow_dynamic_tables.exceptions import DefinitionError, DynamicTableError
from airflow_dynamic_tables.redaction import without_secrets

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
