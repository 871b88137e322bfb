"""Settings: those that decide what a query means are the same on every cluster, unless the definition says otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from pyspark.sql import SparkSession

from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.spark_settings import DEFAULTS, FIXED, TIME_ZONE, decides_rows


class SessionSettings(ABC):
    """The settings of a session, many at once: over a network every question takes its time."""

    @abstractmethod
    def set_by_anybody(self) -> dict[str, str]:
        """What does not have Spark's default, or may not have it."""

    @abstractmethod
    def values(self, names: Collection[str]) -> dict[str, str | None]:
        """What these settings are, whoever says so; ``None`` for one that this Spark does not have."""

    @abstractmethod
    def modifiable(self, names: Collection[str]) -> frozenset[str]:
        """Those that Spark itself has and that can be changed in a session."""

    @abstractmethod
    def change(self, values: Mapping[str, str], defaults: Collection[str] = ()) -> None:
        """Set some, and give others the cluster's or Spark's default."""


class JvmSettings(SessionSettings):
    """Of a session in this process.

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
    """Give every setting that decides rows its one value.

    :return: what the cluster had set and the definition did not ask for, so that it is not used.
    """
    ours = {**DEFAULTS, **FIXED, TIME_ZONE: plan.timezone}
    odd = {name: value for name, value in settings.set_by_anybody().items() if decides_rows(name) and name not in plan.settings}
    of_spark = settings.modifiable(odd)
    # Others are of what is built into the cluster. Under spark.sql.legacy. are the earlier names of many, which Spark still reads
    # and does not list.
    unasked = {name: value for name, value in odd.items() if name in of_spark or name.startswith("spark.sql.legacy.")}
    wanted = {name: value for name, value in ours.items() if name not in plan.settings or name not in DEFAULTS}
    known = settings.values(wanted)
    # Spark warns of some as soon as they are set.
    new = {name: value for name, value in wanted.items() if known.get(name) != value}
    settings.change(new, defaults=unasked.keys() - ours.keys())
    return {name: value for name, value in unasked.items() if ours.get(name) != value}
