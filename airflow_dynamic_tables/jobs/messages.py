"""Messages of Spark's errors, without plans and Java stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException

from airflow_dynamic_tables.redaction import without_secrets

_LONGEST = 4000
"""Maximum characters of a message: sufficient for Spark's longest sentence, and readable in a log."""

_FAILED_READ = "[FAILED_READ_FILE"
"""Prefix of Spark's error that names a file; its cause contains the line and the value."""

_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
"""The name of a Java class before a message."""

_NO_CLIENT = re.compile(r"No FileSystem for scheme|Class \S+FileSystem not found")
"""Hadoop's messages for a scheme without a client, or without the jar of its client."""

_CLIENTS = (
    (re.compile(r'scheme "?gs\b|\.fs\.gs\.'), "com.google.cloud.bigdataoss:gcs-connector:VERSION'}"),
    (re.compile(r'scheme "?abfs|\.azurebfs\.'), "org.apache.hadoop:hadoop-azure:VERSION'} with the version of its Hadoop"),
    (
        re.compile(r'scheme "?s3|\.s3a\.'),
        "org.apache.hadoop:hadoop-aws:VERSION'} with the version of its Hadoop, and begin the address with s3a://",
    ),
)
"""The package with the client of a store, by Hadoop's message."""

_DEEPEST = 30
"""Maximum number of nested causes, because a chain of causes may be cyclic."""


def message(error: BaseException) -> str:
    """The readable message of a job's error."""
    java = getattr(error, "java_exception", None)  # of Py4J's error; Py4J may not be installed with Spark Connect
    if java is not None:
        text = _words(_java_causes(java))
    elif isinstance(error, PySparkException):
        text = str(error)
        if isinstance(error, AnalysisException) and not isinstance(error, ParseException):
            text = text.partition(";\n")[0]  # the plan tree follows
        elif text.startswith(_FAILED_READ):
            text = _words([text, *_server_causes(error)])
    else:
        text = str(error)
    text = without_secrets(_without_stack(text)) or type(error).__name__
    text += _remedy(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _remedy(text: str) -> str:
    """The end of the message of a Spark without the client of a store; a server gets its jars when it is started."""
    if not _NO_CLIENT.search(text):
        return ""
    named = next((f", for example by spark: {{packages: '{package}" for sign, package in _CLIENTS if sign.search(text)), "")
    return f"; give Spark the client of this store{named}"


def refused(version: str, words: str) -> str:
    """The message of a Spark that refuses a text, with its version, because another one may know its syntax or functions."""
    return f"Spark {version}: {words}"


def _java_causes(java: Any) -> list[str]:
    """The messages of a Java exception and its causes, outermost first; the last one includes its class."""
    causes = [java]
    while len(causes) < _DEEPEST and (cause := causes[-1].getCause()) is not None:
        causes.append(cause)
    return [*(str(cause.getMessage() or "") for cause in causes), str(causes[-1].toString())]


def _server_causes(error: PySparkException) -> list[str]:
    """The messages of a Spark Connect error's causes, found only in its stack trace; the last one includes its class."""
    stack = getattr(error, "getStackTrace", str)() or ""
    causes = [_without_stack(cause) for cause in stack.split("\nCaused by: ")[1:]]
    return [*(_CLASS.sub("", cause) for cause in causes), *causes[-1:]]


def _words(causes: Sequence[str]) -> str:
    """The innermost error with an error class of Spark's, its cause, and the file being read."""
    named = [_without_stack(text) for text in causes if text.startswith("[")]
    innermost = _without_stack(causes[-1]).removeprefix("java.lang.RuntimeException: ")
    if not named:
        return innermost
    files = [text for text in named[:-1] if text.startswith(_FAILED_READ) and text != named[-1]]
    text = named[-1] if named[-1] in innermost else f"{named[-1]}: {innermost}"
    return ": ".join([*files[-1:], text])


def _without_stack(text: str) -> str:
    for sign in ("\n\nJVM stacktrace:", "\n\tat ", "\n\nDriver stacktrace:", "\nDriver stacktrace:"):
        text = text.partition(sign)[0]
    return text.strip()
