"""What other engines do to Iceberg tables and PyIceberg does not: rows deleted beside the data files, later format versions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap

from airflow_dynamic_tables.formats.iceberg.files import InOrder


class _ManifestOfDeletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletion(InOrder["_Deletion"], _FastAppendFiles):
    deletes: Sequence[DataFile] = ()

    def _existing_manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        with _ManifestOfDeletes(
            metadata.spec(), metadata.schema(), self.new_manifest_output(), self._snapshot_id, "null"
        ) as writer:
            for file in self.deletes:
                entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)
                writer.add(entry)
        return [writer.to_manifest_file(), *super()._existing_manifests()]


def publish_deletes(table: Table, *files: DataFile) -> None:
    with table.transaction() as transaction:
        deletion = _Deletion(Operation.DELETE, transaction, table.io)
        deletion.deletes = files
        deletion.commit()


def upgrade(table: Table) -> None:
    metadata = Path(table.metadata_location.removeprefix("file://"))
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}))


def forget_history(table: Table) -> None:
    """Take all snapshots and schemas out of the metadata but the current ones, as an expiry may that cleans up."""
    place = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    metadata["schemas"] = [one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"]]
    metadata["snapshots"] = [one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"]]
    metadata["refs"] = {"main": metadata["refs"]["main"]}
    place.write_text(json.dumps(metadata))


def position_deletes(
    table: Table,
    partition: Record,
    places: Sequence[tuple[str, int]],
    content: DataFileContent = DataFileContent.POSITION_DELETES,
) -> DataFile:
    """A Parquet file that deletes rows of a partition, each by the path of its data file and its place there."""
    path = _new_file(table, "parquet")
    columns = {"file_path": pa.array([file for file, _ in places]), "pos": pa.array([row for _, row in places], pa.int64())}
    pq.write_table(pa.table(columns), path, row_group_size=2)
    equality = [2] if content == DataFileContent.EQUALITY_DELETES else None
    return _described(table, path, partition, len(places), file_format=FileFormat.PARQUET, content=content, equality_ids=equality)


def deletion_vectors(table: Table, rows: Mapping[str, tuple[Record, Sequence[int]]]) -> list[DataFile]:
    """One Puffin file with a vector for each data file, as format version 3 has them.

    :param rows: by the path of a data file its partition and the places of its deleted rows.
    """
    written = bytearray(b"PFA1")
    blobs: list[dict[str, Any]] = []
    for file, (_, deleted) in rows.items():
        vector = _vector(deleted)
        told = {"referenced-data-file": file, "cardinality": str(len(deleted))}
        place = {"offset": len(written), "length": len(vector), "snapshot-id": -1, "sequence-number": -1}
        blobs.append({"type": "deletion-vector-v1", "fields": [2147483645], "properties": told, **place})
        written += vector
    footer = json.dumps({"blobs": blobs}).encode()
    written += b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    path = _new_file(table, "puffin")
    path.write_bytes(bytes(written))
    return [
        _described(table, path, partition, len(deleted), file_format=FileFormat.PUFFIN) for partition, deleted in rows.values()
    ]


def _vector(rows: Sequence[int]) -> bytes:
    body = b"\xd1\xd39d" + (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + BitMap(rows).serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def _new_file(table: Table, ending: str) -> Path:
    return Path(table.location().removeprefix("file://"), "data", f"deletes-{uuid4()}.{ending}")


def _described(
    table: Table,
    path: Path,
    partition: Record,
    rows: int,
    content: DataFileContent = DataFileContent.POSITION_DELETES,
    **more: Any,
) -> DataFile:
    size = path.stat().st_size
    file = DataFile.from_args(
        content=content, file_path=f"file://{path}", partition=partition, record_count=rows, file_size_in_bytes=size, **more
    )
    file.spec_id = table.spec().spec_id
    return file
