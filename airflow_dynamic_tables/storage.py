"""Small files and listings on any file system that fsspec reaches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import fsspec

from airflow_dynamic_tables.core.data_files import is_hidden
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


def read_text(uri: str) -> str:
    """Read a small file.

    :raises FileNotFoundError: when it is not there.
    """
    system, path = _file_system(uri)
    return str(system.read_text(path, encoding="utf-8"))


def write_text(uri: str, text: str) -> None:
    """Write a small file, making its folders."""
    system, path = _file_system(uri)
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    system.write_text(path, text, encoding="utf-8")


def list_files(uri: str) -> dict[str, Mapping[str, Any]]:
    """Data files below a folder: full URI to fsspec's info (``size``, and a time or tag of the last change).

    Names that begin with a dot or an underscore, or lie in such a folder, are not data (Spark's rule).

    :raises FileNotFoundError: when there is no such file or folder.
    """
    system, path = _file_system(uri)
    system.invalidate_cache()
    if not system.exists(path):
        raise FileNotFoundError(uri)
    found = system.find(path, detail=True)
    return {
        system.unstrip_protocol(name): info
        for name, info in sorted(found.items())
        if not is_hidden(name[len(path.rstrip("/")) :])
    }


def delete_folder(uri: str) -> None:
    """Delete a folder with everything below it; a missing one is fine."""
    system, path = _file_system(uri)
    with suppress(FileNotFoundError):
        system.rm(path, recursive=True)


def _file_system(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    try:
        system, path = fsspec.core.url_to_fs(uri)
        return system, path
    except ImportError as error:
        scheme = uri.split(":", 1)[0]
        if scheme in _EXTRAS:
            raise MissingExtraError(_EXTRAS[scheme]) from error
        raise ConfigurationError(f"{uri}: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{uri}: no file system for this address ({error})") from error
