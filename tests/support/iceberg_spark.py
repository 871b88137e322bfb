"""Spark with Iceberg's own library, in a process of its own, on the catalogs that our tables are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlalchemy import make_url

from tests.support.downloads import jars, spark_home
from tests.support.postgres import DRIVER
from tests.support.spark import PlainSpark, running_session

_NUMBERS = count(1)


@dataclass(frozen=True)
class IcebergSpark:
    """The session; each test has catalogs of its own in it."""

    session: PlainSpark

    def connect(self, properties: Mapping[str, str], name: str = "") -> str:
        """Open a catalog, and return its name.

        :param properties: those of Iceberg, see :func:`jdbc_properties`.
        :param name: the name, where the catalog's server knows it.
        """
        name = name or f"lake_{next(_NUMBERS)}"
        told = {"": "org.apache.iceberg.spark.SparkCatalog", **{f".{key}": value for key, value in properties.items()}}
        for key, value in {**told, ".cache-enabled": "false"}.items():
            self.sql(f"SET `spark.sql.catalog.{name}{key}`=`{value}`")
        return name

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self.session.sql(statement)


def jdbc_properties(url: str, warehouse: str) -> dict[str, str]:
    """The properties of a catalog in a database that PyIceberg knows by its URL."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        place: dict[str, str] = {"uri": f"jdbc:sqlite:{parsed.database}?busy_timeout=60000"}
    else:
        place = {
            "uri": f"jdbc:postgresql://{parsed.host}:{parsed.port}/{parsed.database}",
            "jdbc.user": parsed.username or "",
            "jdbc.password": parsed.password or "",
        }
    return {"type": "jdbc", "jdbc.schema-version": "V1", "warehouse": warehouse, **place}


def iceberg_library() -> dict[str, str]:
    """The settings by which Spark 4.1 has Iceberg's library, and drivers of the databases of our catalogs."""
    used = [*jars("iceberg-spark-4.1"), *jars("sqlite-jdbc"), *([DRIVER] if DRIVER.exists() else [])]
    return {
        "spark.jars": ",".join(map(str, used)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }


@contextmanager
def running_iceberg_spark() -> Iterator[IcebergSpark]:
    """Start it; it is gone afterwards."""
    with running_session(iceberg_library(), spark_home("4.1")) as session:
        yield IcebergSpark(session)
