"""Settings of a query over Spark Connect."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.connect.proto import ConfigRequest, KeyValue

from airflow_dynamic_tables.jobs.query.settings import SessionSettings


class ConnectSettings(SessionSettings):
    """The settings of a session on a server.

    :param spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._conf = spark.conf
        self._client: Any = spark.client

    def set_by_anybody(self) -> dict[str, str]:
        """See :meth:`SessionSettings.set_by_anybody`."""
        return dict(self._conf.getAll)

    def values(self, names: Collection[str]) -> dict[str, str | None]:
        """See :meth:`SessionSettings.values`."""
        return self._asked(ConfigRequest.Operation(get_option=ConfigRequest.GetOption(keys=names)), names)

    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        """See :meth:`SessionSettings.modifiable`."""
        answers = self._asked(ConfigRequest.Operation(is_modifiable=ConfigRequest.IsModifiable(keys=names)), names)
        return frozenset(name for name, answer in answers.items() if answer == "true")

    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        """See :meth:`SessionSettings.change`."""
        pairs = [KeyValue(key=name, value=value) for name, value in values.items()]
        for operation, names in (
            (ConfigRequest.Operation(unset=ConfigRequest.Unset(keys=defaults)), defaults),
            (ConfigRequest.Operation(set=ConfigRequest.Set(pairs=pairs)), values),
        ):
            for warning in self._answer(operation).warnings if names else ():
                warnings.warn(warning, stacklevel=2)

    def _asked(self, operation: ConfigRequest.Operation, names: Collection[str]) -> dict[str, str | None]:
        """Query settings of the server; no names need no call. Warnings are ignored, because a query is not a use."""
        return dict(self._answer(operation).pairs) if names else {}

    def _answer(self, operation: ConfigRequest.Operation) -> Any:
        return self._client.config(operation)
