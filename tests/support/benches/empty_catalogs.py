"""Empty catalogs of every kind that a catalogs file can name, each on a server or in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.support.benches.iceberg import glue_properties
from tests.support.object_store import running_object_store

if TYPE_CHECKING:
    from tests.support.iceberg_rest.server import IcebergRest


@contextmanager
def empty_catalog(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    data = folder / "lake"
    warehouse = {"warehouse": data.as_uri()}
    if kind == "sql":
        yield {"type": "sql", "connection-params": warehouse}, data
    elif kind == "hive":
        yield {"type": "hive", "connection-params": {"uri": request.getfixturevalue("hive_metastore").uri, **warehouse}}, data
    elif kind == "rest":
        rest: IcebergRest = request.getfixturevalue("iceberg_rest")
        rest.empty()
        chosen = urlsplit(rest.routes.catalog.properties["warehouse"]).path
        yield {"type": "iceberg", "connection-params": {"uri": rest.uri}}, Path(chosen)
    elif kind == "postgres":
        url = request.getfixturevalue("postgres").create_database(f"shop_{uuid4().hex[:12]}")
        yield {"type": "jdbc", "connection-params": {"url": url, **warehouse}}, data
    else:
        with running_object_store() as store:
            yield {"type": "iceberg", "connection-params": {"type": "glue", **glue_properties(store), **warehouse}}, data
