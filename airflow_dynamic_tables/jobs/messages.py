"""Spark's own words for an error, without plans and Java stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException

from airflow_dynamic_tables.redaction import without_secrets

_LONGEST = 4000
"""Characters of a message: enough for Spark's longest sentence, and for a log that somebody reads."""

_FAILED_READ = "[FAILED_READ_FILE"
"""How Spark's words begin that name a file: its cause says the line and the value."""

_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
"""The name of a Java class before its words."""

_DEEPEST = 30
"""Causes of causes that are looked at: a chain of them may bite its own tail."""


def message(error: BaseException) -> str:
    """What a person should read about an error of the job."""
    java = getattr(error, "java_exception", None)  # of Py4J's error, which is not installed wherever Spark is far away
    if java is not None:
        text = _words(_java_causes(java))
    elif isinstance(error, PySparkException):
        text = str(error)
        if isinstance(error, AnalysisException) and not isinstance(error, ParseException):
            text = text.partition(";\n")[0]  # the tree of the plan comes next
        elif text.startswith(_FAILED_READ):
            text = _words([text, *_server_causes(error)])
    else:
        text = str(error)
    text = without_secrets(_without_stack(text)) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _java_causes(java: Any) -> list[str]:
    """The words of a Java exception and of its causes, outermost first; those of the last one name its class."""
    causes = [java]
    while len(causes) < _DEEPEST and (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    return [*(str(cause.getMessage() or "") for cause in causes), str(causes[-1].toString())]


def _server_causes(error: PySparkException) -> list[str]:
    """The same of the causes of an error of a Spark Connect server, which says them in its stack trace alone."""
    stack = getattr(error, "getStackTrace", str)() or ""
    causes = [_without_stack(cause) for cause in stack.split("\nCaused by: ")[1:]]
    return [*(_CLASS.sub("", cause) for cause in causes), *causes[-1:]]


def _words(causes: Sequence[str]) -> str:
    """The innermost error that Spark named by a class of its own, what caused it, and which file it was reading.

    :param causes: outermost first; the last one names its class.
    """
    named = [_without_stack(text) for text in causes if text.startswith("[")]
    innermost = _without_stack(causes[-1])
    if not named:
        return innermost
    files = [text for text in named[:-1] if text.startswith(_FAILED_READ) and text != named[-1]]
    text = named[-1] if named[-1] in innermost else f"{named[-1]}: {innermost}"
    return ": ".join([*files[-1:], text])


def _without_stack(text: str) -> str:
    for sign in ("\n\nJVM stacktrace:", "\n\tat ", "\n\nDriver stacktrace:", "\nDriver stacktrace:"):
        text = text.partition(sign)[0]
    return text.strip()
