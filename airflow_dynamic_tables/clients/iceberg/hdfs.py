"""Files of Iceberg tables in HDFS."""

from __future__ import annotations

from typing import Any
from urllib.parse import ParseResult

from pyiceberg.io.fsspec import FsspecFileIO

from airflow_dynamic_tables.clients.hdfs import HadoopFileSystem


class HadoopFileIO(FsspecFileIO):
    """The files of Iceberg tables, also in HDFS, which PyIceberg reads by libhdfs only."""

    def _get_fs_from_uri(self, uri: ParseResult, location: str = "") -> Any:
        if uri.scheme == HadoopFileSystem.protocol:
            return HadoopFileSystem(uri.hostname, uri.port)
        return super()._get_fs_from_uri(uri, location)
