"""Small files and listings through Hadoop, on any file system that Spark supports."""

from __future__ import annotations

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
    system, path = _open(spark, uri)
    if not system.exists(path):
        return []
    root = system.makeQualified(path).toString()
    statuses = system.listFiles(path, True)
    files: list[tuple[str, int]] = []
    while statuses.hasNext():
        status = statuses.next()
        relative = status.getPath().toString()[len(root) :]
        if not is_hidden(relative):
            files.append((uri + relative, int(status.getLen())))
    return sorted(files)


def _open(spark: SparkSession, uri: str) -> tuple[Any, Any]:
    path = _jvm(spark).org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
