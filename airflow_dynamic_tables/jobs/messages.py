"""Spark's own words for an error, without plans and Java stacks."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException

from airflow_dynamic_tables.redaction import without_secrets

_LONGEST = 4000
"""Characters of a message: enough for Spark's longest sentence, and for a log that somebody reads."""

_DEEPEST = 30
"""Causes of causes that are looked at: a chain of them may bite its own tail."""


def message(error: BaseException) -> str:
    """What a person should read about an error of the job."""
    java = getattr(error, "java_exception", None)  # of Py4J's error, which is not installed wherever Spark is far away
    if java is not None:
        text = _words(java)
    elif isinstance(error, PySparkException):
        text = str(error)
        if isinstance(error, AnalysisException) and not isinstance(error, ParseException):
            text = text.partition(";\n")[0]  # the tree of the plan comes next
    else:
        text = str(error)
    text = without_secrets(_without_stack(text)) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _words(java: Any) -> str:
    """The innermost error that Spark named by a class of its own, and what caused it."""
    causes = [java]
    while len(causes) < _DEEPEST and (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    innermost = _without_stack(str(causes[-1].toString()))
    named = [text for cause in causes if (text := str(cause.getMessage() or "")).startswith("[")]
    if not named:
        return innermost
    text = _without_stack(named[-1])
    return text if text in innermost else f"{text}: {innermost}"


def _without_stack(text: str) -> str:
    for sign in ("\n\nJVM stacktrace:", "\n\tat ", "\n\nDriver stacktrace:", "\nDriver stacktrace:"):
        text = text.partition(sign)[0]
    return text.strip()
