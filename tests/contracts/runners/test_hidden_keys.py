"""Hidden partition keys over Spark Connect, whose messages hold a hundred levels of an expression."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from airflow_dynamic_tables.clients.iceberg.schemas import to_iceberg, transform_of
from airflow_dynamic_tables.core.partition_transforms import TRANSFORMS, HiddenKey
from airflow_dynamic_tables.jobs.writers import transformed
from tests.support.connect_server import ConnectServer

pytestmark = pytest.mark.spark

VALUES: dict[str, tuple[str, Any]] = {
    "int": ("-7", -7),
    "bigint": ("34L", 34),
    "string": ("'Größe'", "Größe"),
    "binary": ("X'00010203FF'", bytes.fromhex("00010203ff")),
    "date": ("DATE'2017-11-16'", (date(2017, 11, 16) - date(1970, 1, 1)).days),
    "timestamp": ("TIMESTAMP'2017-11-16 22:31:08Z'", int(datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC).timestamp()) * 1_000_000),
    "timestamp_ntz": (
        "TIMESTAMP_NTZ'2017-11-16 22:31:08'",
        int(datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC).timestamp()) * 1_000_000,
    ),
    "decimal(9,2)": ("CAST(-14.20 AS DECIMAL(9,2))", Decimal("-14.20")),
    "decimal(38,0)": ("CAST('-9999999999999999999999999999999999999' AS DECIMAL(38,0))", Decimal(1 - 10**37)),
}


@pytest.fixture
def session(connect_server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session = ConnectSession.builder.remote(connect_server.url).create()
    yield cast(SparkSession, session)
    session.stop()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", VALUES)
def test_every_transform_of_every_type_is_computed_as_iceberg_does(session: SparkSession, kind: str) -> None:
    literal, value = VALUES[kind]
    keys = [
        key
        for name in TRANSFORMS
        if (key := HiddenKey(name, "a`b c", 16 if TRANSFORMS[name].number else None)).type_problem(kind) is None
    ]
    frame = session.sql(f"SELECT {literal} AS `a``b c`")
    source = frame.schema["a`b c"].dataType
    assert source.simpleString() == kind
    (row,) = frame.select([transformed(key, source).alias(str(key)) for key in keys]).collect()
    for key in keys:
        wanted = transform_of(key).transform(to_iceberg(kind))(value)
        assert row[str(key)] == (wanted.hex().upper() if isinstance(wanted, bytes) else wanted), key
