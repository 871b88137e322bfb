"""HDFS by hdfs-native: neither Java nor libhdfs is needed on the worker."""

from __future__ import annotations

import os
import shutil
from typing import Any

from hdfs_native import FileReader
from hdfs_native.fsspec import HdfsFileSystem

_CLIENTS: list[Any] = []
"""The client of each address, for good: fsspec forgets its file systems in a forked process, as Airflow's tasks are, and a client
that is dropped there waits forever for its threads.
"""


class _Reader(FileReader):
    """A file whose ``seek`` returns the position, as all of Python's do."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        super().seek(offset, whence)
        return self.tell()


class HadoopFileSystem(HdfsFileSystem):
    """HDFS with the times of files in seconds, with any names, and with the creation of a file that must not exist."""

    def __init__(self, *address: Any, **options: Any) -> None:
        super().__init__(*address, **options)
        _CLIENTS.append(self.client)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        """The path of a URI: names may contain the signs of parameters, queries and fragments, such as ``ds=a;b``."""
        _, scheme, rest = path.partition("://")
        return f"/{rest.partition('/')[2]}" if scheme else path or "/"

    def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
        return {**super()._convert_file_status(file_status), "mtime": file_status.modification_time / 1000}

    def _open(
        self,
        path: str,
        mode: str = "rb",
        overwrite: bool = True,
        replication: int | None = None,
        block_size: int | None = None,
        **options: Any,
    ) -> Any:
        if mode == "xb":
            mode, overwrite = "wb", False
        opened = super()._open(path, mode, overwrite, replication, block_size, **options)
        return _Reader(opened.inner) if isinstance(opened, FileReader) else opened

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        """Copy a file through this process."""
        with self.open(path1, "rb") as source, self.open(path2, "wb") as target:
            shutil.copyfileobj(source, target)
