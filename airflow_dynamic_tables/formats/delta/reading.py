"""How Spark reads a version of a Delta table without Delta's own library: exactly its files, in partitions as the log says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from airflow_dynamic_tables.clients.delta.snapshots import DeltaFile, DeltaSnapshot
from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.refresh.plan import SourcePart
from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.tables.partitions import NULL_PARTITION
from airflow_dynamic_tables.core.tables.schema import Column, spark_ddl
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.formats.contents import TableContent
from airflow_dynamic_tables.formats.fingerprints import lasting_fingerprints, schema_digest

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
"""What Delta's own library is called in ``spark.sql.extensions``."""

_HARMLESS = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Features that leave to readers what the log says of files and columns; the first two only as long as they are not used."""


def content(snapshot: DeltaSnapshot, name: object, *, has_library: bool = False) -> TableContent:
    """A version of a table as Spark reads it.

    :param name: what messages call the table.
    :param has_library: whether the Spark that reads it has Delta's own library, which is asked only where files are not enough.
    :raises UnsupportedError: when reading its files alone would give wrong rows, and there is no library.
    """
    version = str(snapshot.version)
    if why := unreadable_by_name(snapshot):
        if not has_library:
            raise UnsupportedError(
                f"Delta table {name} {why}; to read it, add Delta's library for Spark (spark.jars.packages), "
                f"spark.sql.extensions: {EXTENSION} and spark.sql.catalog.spark_catalog: "
                "org.apache.spark.sql.delta.catalog.DeltaCatalog to the 'spark.conf' of the definition."
            )
        return TableContent(version, table=f"delta.{quote(snapshot.location)}", state=state(snapshot, by_files=False))
    return TableContent(
        snapshot=version,
        files=tuple(file.uri for file in snapshot.files),
        schema=spark_ddl(snapshot.columns),
        partition_keys=snapshot.partition_keys,
        parts=parts(snapshot.files, snapshot),
        state=state(snapshot),
    )


def restricted(whole: TableContent, snapshot: DeltaSnapshot, files: Sequence[DeltaFile]) -> TableContent:
    """The same with these files only."""
    return replace(whole, files=tuple(file.uri for file in files), parts=parts(files, snapshot))


def unreadable_by_name(snapshot: DeltaSnapshot) -> str | None:
    """Why the rows of a version are not just those of its data files, columns by their names; ``None`` when they are."""
    if snapshot.properties.get("delta.columnMapping.mode", "none") != "none":
        return "has columns that are called otherwise in its files (column mapping)"
    if unknown := sorted(snapshot.protocol.reader_features - _HARMLESS):
        return f"needs a reader that knows {', '.join(unknown)}"
    if snapshot.hides_rows:
        return "holds deletion vectors, or may do so"
    if keys := [column.name for column in _keys(snapshot) if column.type == "binary"]:
        return f"has a partition key that is binary, {keys[0]}"
    return None


def state(snapshot: DeltaSnapshot, *, by_files: bool = True) -> SourceState:
    """What a version is like.

    :param by_files: whether its files tell which partitions it has; otherwise it is one that cannot be split.
    """
    version = str(snapshot.version)
    # Nobody rewrites a data file in place, so its name and size say what it holds.
    listed = ((file.partition, (file.uri, {"size": file.bytes})) for file in (snapshot.files if by_files else ()))
    return SourceState(
        version=version,
        identity=snapshot.id,
        location=snapshot.location,
        schema=schema_digest(f"{snapshot.schema} {','.join(snapshot.partition_keys)}"),
        partitions=lasting_fingerprints(listed) if by_files else {"": version},
    )


def parts(files: Sequence[DeltaFile], snapshot: DeltaSnapshot) -> tuple[SourcePart, ...]:
    """Files of a partitioned table, those together that Spark reads at once; none of a table without partition keys.

    The log alone says of which partition a file is. Where its folders say the same, Spark reads it from there, many partitions
    at once; where they do not, the values go with the files.
    """
    keys = snapshot.partition_keys
    if not keys:
        return ()
    times = {column.name for column in _keys(snapshot) if column.type == "timestamp"}
    below: dict[str, list[str]] = {}
    beside: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        # The name of a folder says what moment a time is in the time zone of the session, the log in UTC.
        root = _root(file, keys) if not times else None
        if root is not None:
            below.setdefault(root, []).append(file.uri)
        else:
            values = tuple(_spelled(file.partition.get(key), in_utc=key in times) for key in keys)
            beside.setdefault(values, []).append(file.uri)
    return (
        *(SourcePart(tuple(uris), root) for root, uris in below.items()),
        *(SourcePart(tuple(uris), values=dict(zip(keys, values, strict=True))) for values, uris in beside.items()),
    )


def _keys(snapshot: DeltaSnapshot) -> list[Column]:
    return [column for column in snapshot.columns if column.name in snapshot.partition_keys]


def _spelled(value: str | None, *, in_utc: bool = False) -> str:
    """A value of a partition key as a part of a source has it; an empty text is null by Delta's protocol."""
    if not value:
        return NULL_PARTITION
    return f"{value}+00:00" if in_utc and not value.endswith(("Z", "+00:00")) else value


def _root(file: DeltaFile, keys: Sequence[str]) -> str | None:
    """The folder below which Hive-style folders say what the log says of a file; ``None`` when they do not."""
    *above, _ = file.uri.split("/")
    told = [_read_by_spark(folder) for folder in above[-len(keys) :]]
    if told != [(key, _spelled(file.partition.get(key))) for key in keys]:
        return None
    return "/".join(above[: -len(keys)])


def _read_by_spark(folder: str) -> tuple[str, str]:
    """Key and value that Spark takes from the name of a folder: what is escaped is one character a byte."""
    key, _, value = folder.partition("=")
    return unquote(key, encoding="latin-1"), unquote(value, encoding="latin-1")
