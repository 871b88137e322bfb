"""Small files and listings through Hadoop: on whatever file system Spark reaches."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.tables.data_files import PATTERN_SIGNS, is_hidden


def exactly(uri: str) -> str:
    """The pattern by which Spark reads this file or folder and no other, whatever it is called.

    Spark can be told that paths are no patterns, but 4.2 then reads all of them once for each that looks like one (SPARK-58518).
    """
    return "".join(f"\\{sign}" if sign in PATTERN_SIGNS else sign for sign in uri)


def read_text(spark: SparkSession, uri: str) -> str:
    """Read a small file."""
    system, path = _open(spark, uri)
    stream = system.open(path)
    try:
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, uri: str, text: str) -> None:
    """Write a small file so that it is there whole or not at all."""
    system, path = _open(spark, uri)
    half = _written(spark, system, f"{uri}.writing", text)
    system.delete(path, False)
    if not system.rename(half, path):
        raise OSError(f"cannot rename {uri}.writing to {uri}")


def create_text(spark: SparkSession, uri: str, text: str) -> None:
    """Write a small file that nobody has written yet, so that it is there whole or not at all.

    Two at the same moment are kept apart as well as the file system does that, as in Spark's own checkpoints.

    :raises FileExistsError: when somebody has.
    """
    system, path = _open(spark, uri)
    folder, _, name = uri.rpartition("/")
    half = _written(spark, system, f"{folder}/.{name}.{uuid4().hex}", text)
    if system.exists(path) or not system.rename(half, path):
        system.delete(half, False)
        raise FileExistsError(f"{uri} is there already")


def _written(spark: SparkSession, system: Any, uri: str, text: str) -> Any:
    """Hadoop's path of a file that was written anew under a name that nobody reads."""
    path = _jvm(spark).org.apache.hadoop.fs.Path(uri)
    stream = system.create(path, True)
    try:
        stream.write(bytearray(text.encode("utf-8")))
    finally:
        stream.close()
    return path


def list_names(spark: SparkSession, uri: str) -> list[str]:
    """The names of what lies directly in a folder; nothing when there is no such folder."""
    system, path = _open(spark, uri)
    return [str(status.getPath().getName()) for status in system.listStatus(path)] if system.exists(path) else []


def qualified(spark: SparkSession, uri: str) -> str:
    """A URI as Hadoop writes it, with signs escaped."""
    system, path = _open(spark, uri)
    return str(system.makeQualified(path).toUri().toString())


def list_files(spark: SparkSession, uri: str) -> list[tuple[str, int]]:
    """Data files below a folder: URI as ``uri`` spells it, and size in bytes. Empty when there is no such folder."""
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
