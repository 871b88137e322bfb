"""Settings of a query: those that determine its meaning, independent of the cluster, and their access over Spark Connect."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.connect.proto import ConfigRequest, KeyValue

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, decides_rows


class SessionSettings(ABC):
    """The settings of a session, accessed in bulk because each call over a network has latency."""

    @abstractmethod
    def set_by_anybody(self) -> dict[str, str]:
        """Settings that do not, or may not, have Spark's default."""

    @abstractmethod
    def values(self, names: Collection[str]) -> dict[str, str | None]:
        """The effective values of settings; ``None`` for one that this Spark does not have."""

    @abstractmethod
    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        """The settings of Spark itself that can be changed in a session."""

    @abstractmethod
    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        """Set values, and reset other settings to the cluster's or Spark's default."""


class JvmSettings(SessionSettings):
    """The settings of a session in this process.

    :param spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._conf = spark.conf

    def set_by_anybody(self) -> dict[str, str]:
        """See :meth:`SessionSettings.set_by_anybody`."""
        return dict(self._conf.getAll)

    def values(self, names: Collection[str]) -> dict[str, str | None]:
        """See :meth:`SessionSettings.values`."""
        return {name: self._conf.get(name) if self._conf.isModifiable(name) else None for name in names}

    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        """See :meth:`SessionSettings.modifiable`."""
        return frozenset(filter(self._conf.isModifiable, names))

    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        """See :meth:`SessionSettings.change`."""
        for name in defaults:
            self._conf.unset(name)
        for name, value in values.items():
            self._conf.set(name, value)


def settle_settings(settings: SessionSettings, plan: RefreshPlan) -> dict[str, str]:
    """Apply the value of every setting that affects the meaning of a query.

    :return: settings of the cluster that are ignored because the definition does not set them.
    """
    ours = {**DEFAULTS, **FIXED, TIME_ZONE: plan.timezone}
    odd = {name: value for name, value in settings.set_by_anybody().items() if decides_rows(name) and name not in plan.settings}
    of_spark = settings.modifiable(odd)
    # Others belong to extensions of the cluster. Settings under spark.sql.legacy. include former names, which Spark still reads
    # but does not list.
    unasked = {name: value for name, value in odd.items() if name in of_spark or name.startswith("spark.sql.legacy.")}
    wanted = {name: value for name, value in ours.items() if name not in plan.settings or name not in DEFAULTS}
    known = settings.values(wanted)
    # Spark logs a warning when some settings are set, even to the same value.
    new = {name: value for name, value in wanted.items() if known.get(name) != value}
    settings.change(new, defaults=unasked.keys() - ours.keys())
    return {name: value for name, value in unasked.items() if ours.get(name) != value}


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
