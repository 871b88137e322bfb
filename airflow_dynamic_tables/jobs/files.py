"""Small files and listings through Hadoop, on any file system that Spark supports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.schema import PATTERN_SIGNS, is_hidden


def exactly(uri: str) -> str:
    """Escape a path, so that Spark reads exactly this file or folder instead of a pattern.

    Spark has an option that disables patterns, but Spark 4.2 then reads all paths once per path that looks like a pattern
    (SPARK-58518).
    """
    return "".join(f"\\{sign}" if sign in PATTERN_SIGNS else sign for sign in uri)


def exists(spark: SparkSession, uri: str) -> bool:
    """Return whether a file or folder exists."""
    system, path = _open(spark, uri)
    return bool(system.exists(path))


def read_text(spark: SparkSession, uri: str) -> str:
    """Read a small file."""
    system, path = _open(spark, uri)
    stream = system.open(path)
    try:
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, uri: str, text: str) -> None:
    """Write a small file atomically."""
    system, path = _open(spark, uri)
    half = _written(spark, system, f"{uri}.writing", text)
    system.delete(path, False)
    if not system.rename(half, path):
        raise OSError(f"cannot rename {uri}.writing to {uri}")


def create_text(spark: SparkSession, uri: str, text: str) -> None:
    """Write a small file atomically if it does not exist.

    Two concurrent writers are only separated as well as the file system does it, as in Spark's own checkpoints.

    :raises FileExistsError: when the file exists.
    """
    system, path = _open(spark, uri)
    folder, _, name = uri.rpartition("/")
    half = _written(spark, system, f"{folder}/.{name}.{uuid4().hex}", text)
    if system.exists(path) or not system.rename(half, path):
        system.delete(half, False)
        raise FileExistsError(f"{uri} is there already")


def _written(spark: SparkSession, system: Any, uri: str, text: str) -> Any:
    path = _jvm(spark).org.apache.hadoop.fs.Path(uri)
    stream = system.create(path, True)
    try:
        stream.write(bytearray(text.encode("utf-8")))
    finally:
        stream.close()
    return path


def list_names(spark: SparkSession, uri: str) -> list[str]:
    """The names directly in a folder; empty when the folder does not exist."""
    system, path = _open(spark, uri)
    return [str(status.getPath().getName()) for status in system.listStatus(path)] if system.exists(path) else []


def qualified(spark: SparkSession, uri: str) -> str:
    """A URI in Hadoop's form, with special characters escaped."""
    system, path = _open(spark, uri)
    return str(system.makeQualified(path).toUri().toString())


def list_files(spark: SparkSession, uri: str) -> list[tuple[str, int]]:
    """Data files below a folder: URI in the spelling of ``uri``, and size in bytes. Empty when the folder does not exist."""
    found = _local_files(uri.removeprefix("file:")) if uri.startswith("file:/") else _hadoop_files(spark, uri)
    return sorted((uri + relative, size) for relative, size in found if not is_hidden(relative))


def _local_files(folder: str) -> Iterator[tuple[str, int]]:
    """Without Hadoop, which runs ``ls`` for the permissions of each local file."""
    root = str(Path(folder))
    for parent, _, names in os.walk(root, onerror=_fail):
        for path in (Path(parent, name) for name in names):
            yield str(path)[len(root) :], path.stat().st_size


def _fail(error: OSError) -> None:
    """Raise an error of a folder that cannot be read: its files would be missing from the table."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _hadoop_files(spark: SparkSession, uri: str) -> Iterator[tuple[str, int]]:
    system, path = _open(spark, uri)
    if not system.exists(path):
        return
    root = system.makeQualified(path).toString()
    statuses = system.listFiles(path, True)
    while statuses.hasNext():
        status = statuses.next()
        yield status.getPath().toString()[len(root) :], int(status.getLen())


def _open(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    path = _jvm(spark).org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
