"""What a table may say itself or take from the file's defaults, and the types that all declarations are made of."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from airflow_dynamic_tables.core.cron import check_cron
from airflow_dynamic_tables.core.freshness import Freshness
from airflow_dynamic_tables.core.retention import SHORTEST_AGE

SINK_FORMATS = ("iceberg", "parquet", "orc")
PLANNED_SINK_FORMATS = ("delta", "jdbc")

FORMATTER_OPTION = re.compile(r"partition\.fields\.(?P<column>.+)\.(?:date-formatter|time-formatter)")
REFRESH_MODES = ("auto", "full", "incremental", "continuous")


def _text(value: object) -> object:
    """Spark's ``true`` and ``false`` for the two YAML scalars that are not read as text."""
    return str(value).lower() if isinstance(value, bool) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def one_of(value: str, what: str, legal: Iterable[str], planned: Iterable[str] = ()) -> str:
    """The value, when it is legal.

    :raises ValueError: when it is not; says what is, and whether it will be.
    """
    if value in planned:
        raise ValueError(f"{what} {value!r} is not supported yet; use {' | '.join(legal)}")
    if value not in legal:
        raise ValueError(f"{value!r} is no {what}; use {' | '.join(legal)}{did_you_mean(value, legal)}")
    return value


def _duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return Freshness.parse(value).period
    except ValueError:
        raise ValueError(f"{value!r} is no length of time; write for example '5 minutes'") from None


def _check_timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, KeyError, OSError):
        raise ValueError(f"there is no time zone {value!r}; use a name such as 'Europe/Berlin'{_zones_like(value)}") from None
    return value


def _zones_like(value: str) -> str:
    # Listing the zones reads a few hundred files, so only a mistake does it.
    from zoneinfo import available_timezones

    return did_you_mean(value, sorted(available_timezones()))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name that looks most alike, or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


Name = Annotated[str, Field(min_length=1)]
Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["5 minutes"]})]
Scalar = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]}, mode="validation")]
Options = dict[Name, Scalar]


class Declaration(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SparkDeclaration(Declaration):
    """How the Spark job is submitted; what is left out comes from the Airflow connection."""

    conn_id: Name | None = None
    """Airflow connection of type Spark; default `spark_default`."""
    conf: Options = Field(default_factory=dict)
    """Spark configuration, e.g. `spark.executor.memory: 4g`."""
    deploy_mode: Literal["client", "cluster"] | None = None
    """Where the driver runs."""
    yarn_queue: Name | None = None
    """YARN queue."""
    num_executors: int | None = Field(default=None, ge=1)
    """Number of executors."""
    executor_cores: int | None = Field(default=None, ge=1)
    """Cores of an executor."""
    executor_memory: Name | None = None
    """Memory of an executor, e.g. `4g`."""
    total_executor_cores: int | None = Field(default=None, ge=1)
    """Cores of all executors together (standalone)."""
    driver_memory: Name | None = None
    """Memory of the driver, e.g. `2g`."""
    packages: Name | None = None
    """Maven coordinates of jars, separated by commas."""
    exclude_packages: Name | None = None
    """Maven coordinates to leave out, separated by commas."""
    repositories: Name | None = None
    """Maven repositories, separated by commas."""
    jars: Name | None = None
    """Jars, separated by commas."""
    files: Name | None = None
    """Files for every executor, separated by commas."""
    py_files: Name | None = None
    """Python files or zips besides this package, separated by commas."""
    archives: Name | None = None
    """Archives that every executor unpacks, separated by commas."""
    driver_class_path: Name | None = None
    """Class path of the driver."""
    properties_file: Name | None = None
    """File of Spark properties."""
    proxy_user: Name | None = None
    """User to impersonate."""
    principal: Name | None = None
    """Kerberos principal."""
    keytab: Name | None = None
    """Kerberos keytab."""
    env_vars: Options = Field(default_factory=dict)
    """Environment variables of spark-submit."""


class Settings(Declaration):
    """What a table may say itself or take from the file's defaults."""

    freshness: Name | None = None
    """How old the content may be: `1 day`, `PT30M`, `INTERVAL '1' DAY`. Gives the schedule."""
    refresh_mode: Annotated[str, BeforeValidator(_lower), Field(json_schema_extra={"enum": list(REFRESH_MODES)})] | None = None
    """How the table is refreshed; `auto` (the default) decides by the freshness."""
    schedule: Name | None = None
    """Cron expression that overrides the one derived from the freshness."""
    timezone: Name | None = None
    """Time zone of the schedule and of the partition values, e.g. `Europe/Berlin`; default `UTC`."""
    format: Annotated[str, Field(json_schema_extra={"enum": list(SINK_FORMATS)})] | None = None
    """Format of the table; default `iceberg`."""
    atomicity: Annotated[str, Field(json_schema_extra={"enum": ["staged", "none"]})] | None = None
    """`staged` (the default): readers see the last version or the new one. `none`: allow a format that cannot do that."""
    versions_to_keep: int | None = Field(default=None, ge=1)
    """How many versions are kept at least; default 10."""
    version_max_age: Duration | None = None
    """How long a version is kept at least after another took its place, e.g. `7 days` (the default)."""
    options: Options = Field(default_factory=dict)
    """Table options, e.g. `partition.fields.ds.date-formatter: yyyy-MM-dd`."""
    spark: SparkDeclaration = Field(default_factory=SparkDeclaration)
    """How the Spark job is submitted."""
    start_date: datetime | None = None
    """First time the schedule may run; without an offset it is in the table's time zone."""
    tags: tuple[Name, ...] = ()
    """Tags of the DAG; a table adds its own to the defaults."""
    owner: Name | None = None
    """Owner of the Airflow task."""
    retries: int | None = Field(default=None, ge=0)
    """How often a failed refresh is tried again."""
    retry_delay: Duration | None = None
    """Time between two tries, e.g. `5 minutes`."""
    pool: Name | None = None
    """Airflow pool of the refresh task."""
    execution_timeout: Duration | None = None
    """Time after which a refresh is stopped, e.g. `2 hours`."""

    @field_validator("freshness")
    @classmethod
    def _check_freshness(cls, value: str | None) -> str | None:
        return value and Freshness.parse(value).text

    @field_validator("refresh_mode")
    @classmethod
    def _check_refresh_mode(cls, value: str | None) -> str | None:
        return value and one_of(value, "refresh mode", REFRESH_MODES)

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, value: str | None) -> str | None:
        if value:
            check_cron(value)
        return value

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, value: str | None) -> str | None:
        return value and _check_timezone(value)

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str | None) -> str | None:
        return value and one_of(value, "table format", SINK_FORMATS, PLANNED_SINK_FORMATS)

    @field_validator("atomicity")
    @classmethod
    def _check_atomicity(cls, value: str | None) -> str | None:
        return value and one_of(value, "atomicity", ("staged", "none"))

    @field_validator("version_max_age")
    @classmethod
    def _check_version_max_age(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value < SHORTEST_AGE:
            raise ValueError("'version_max_age' must be at least 1 hour: whoever still reads a version needs time to end")
        return value
