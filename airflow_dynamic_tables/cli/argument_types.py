"""Types of command-line arguments: they parse text, and explain what is wrong with it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import datetime

from airflow_dynamic_tables.core.partitions import parse_spec, split_partitions
from airflow_dynamic_tables.core.schedule import Freshness, parse_schedule_time


def schedule_time(text: str) -> datetime:
    """Parse ``YYYY-MM-DD HH:MM:SS`` or ISO 8601; without an offset the result is naive and gets the table's time zone."""
    try:
        return parse_schedule_time(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no time; write for example '2024-01-31 06:00:00'") from error


def partition(text: str) -> dict[str, str]:
    """Parse ``ds=2024-01-01`` or ``ds=2024-01-01/hh=03``."""
    try:
        return parse_spec(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def partitions(text: str) -> str:
    """Check partitions and ranges of them, as far as possible without a table."""
    try:
        split_partitions(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    return text


def key_value(text: str) -> tuple[str, str]:
    """Parse ``key=value``; the value may be empty and may contain ``=``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ArgumentTypeError(f"{text!r} is no property; write key=value")
    return key, value


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def port(text: str) -> int:
    """Parse the number of a TCP port; 0 is any free port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise ArgumentTypeError(f"{text!r} is no port; write a whole number up to 65535")
    return int(text)


def token(text: str) -> str:
    """Check the token of a refresh: it identifies the refresh in the history, and names its stage."""
    if not re.fullmatch(r"[\w-]{1,64}", text, re.ASCII):
        raise ArgumentTypeError(f"{text!r} is no token; write up to 64 letters, digits and dashes, or leave it out")
    return text


def idle_time(text: str) -> int | None:
    """Parse a duration such as ``15 minutes`` to seconds, ``never`` to ``None``."""
    if text.strip().lower() == "never":
        return None
    try:
        return Freshness.parse(text).seconds
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no length of time; write for example '15 minutes', or never") from error


def local_master(text: str) -> str:
    """Check that a Spark master is this machine: ``local``, ``local[4]``, ``local[*]``."""
    if not re.fullmatch(r"local(\[(\*|\d+)\])?", text):
        raise ArgumentTypeError(f"{text!r} is not this machine; write for example local[4], or local[*] for all its cores")
    return text
