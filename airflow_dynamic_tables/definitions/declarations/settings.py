"""Declarations of settings that a table and the defaults share: Spark submission, continuous refresh, params and schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from math import isfinite
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from airflow_dynamic_tables.core.cron import check_cron
from airflow_dynamic_tables.core.formats import sink_formats
from airflow_dynamic_tables.core.limits import TAG_CHARACTERS
from airflow_dynamic_tables.core.refresh.spark_settings import conf_problem
from airflow_dynamic_tables.core.schedule import ContinuousSettings, Freshness, StrategyName
from airflow_dynamic_tables.core.versions import SHORTEST_AGE
from airflow_dynamic_tables.definitions.declarations.airflow import AirflowDeclaration, Duration
from airflow_dynamic_tables.definitions.declarations.base import (
    Declaration,
    Name,
    OneOf,
    Options,
    PlainName,
    Scalar,
    UnknownValueError,
)
from airflow_dynamic_tables.definitions.model import NO_SCHEDULE, RUN_PARAMS, RunParam
from airflow_dynamic_tables.redaction import is_secret_name
from airflow_dynamic_tables.yaml_files.documents import Flag


def _check_argument(value: str) -> str:
    """Check a value for a command line or an environment variable, which must not contain NUL."""
    if "\0" in value:
        raise ValueError("the character NUL cannot be passed to spark-submit; remove it")
    return value


def _check_variable(name: str) -> str:
    if "=" in name:
        raise ValueError(f"{name!r} cannot be the name of an environment variable: it has a '='")
    return name


def _check_conf(value: dict[str, str]) -> dict[str, str]:
    if problem := conf_problem(value):
        raise ValueError(problem)
    return value


Argument = Annotated[Name, AfterValidator(_check_argument)]


Value = Annotated[Scalar, AfterValidator(_check_argument)]


Variable = Annotated[Argument, AfterValidator(_check_variable)]


class SparkDeclaration(Declaration):
    """Submission of the Spark job; unset keys come from the Airflow connection."""

    conn_id: Argument | None = None
    """Airflow connection of type Spark; default `spark_default`."""
    conf: Annotated[dict[Argument, Value], AfterValidator(_check_conf)] = Field(default_factory=dict)
    """Spark configuration, e.g. `spark.executor.memory: 4g`."""
    deploy_mode: Literal["client", "cluster"] | None = None
    """Where the driver runs: `client` or `cluster`."""
    yarn_queue: Argument | None = None
    """YARN queue."""
    num_executors: int | None = Field(default=None, ge=1)
    """Number of executors."""
    executor_cores: int | None = Field(default=None, ge=1)
    """Cores per executor."""
    executor_memory: Argument | None = None
    """Memory per executor, e.g. `4g`."""
    total_executor_cores: int | None = Field(default=None, ge=1)
    """Total cores of all executors (standalone)."""
    driver_memory: Argument | None = None
    """Memory of the driver, e.g. `2g`."""
    packages: Argument | None = None
    """Maven coordinates of jars, separated by commas."""
    exclude_packages: Argument | None = None
    """Maven coordinates to exclude, separated by commas."""
    repositories: Argument | None = None
    """Maven repositories, separated by commas."""
    jars: Argument | None = None
    """Jars, separated by commas."""
    files: Argument | None = None
    """Files for every executor, separated by commas."""
    py_files: Argument | None = None
    """Python files or zips in addition to this package, separated by commas."""
    archives: Argument | None = None
    """Archives that every executor unpacks, separated by commas."""
    driver_class_path: Argument | None = None
    """Class path of the driver."""
    properties_file: Argument | None = None
    """File of Spark properties."""
    proxy_user: Argument | None = None
    """User to impersonate."""
    principal: Argument | None = None
    """Kerberos principal."""
    keytab: Argument | None = None
    """Kerberos keytab."""
    env_vars: dict[Variable, Value] = Field(default_factory=dict)
    """Environment variables of spark-submit."""


_DAY = timedelta(days=1)
_LONGEST_HOLD = _DAY
"""Upper limit, so that draining a worker and reporting to Airflow take no longer."""


def _check_length(value: timedelta) -> timedelta:
    if value > _LONGEST_HOLD:
        raise ValueError("must be at most 1 day: a worker cannot be drained before that")
    return value


_Hold = Annotated[Duration, AfterValidator(_check_length)]


class ContinuousDeclaration(Declaration):
    """Settings of continuous refresh; ignored for scheduled tables."""

    strategy: Annotated[str, OneOf("strategy", tuple(StrategyName))] | None = None
    """`micro-refresh`: one refresh per freshness; `stream`: a streaming query; `auto` (the default): as the query needs."""
    hold: _Hold | None = None
    """How long a task occupies a worker slot, e.g. `1 hour` (the default); the next run continues its work."""
    events: _Hold | None = None
    """Maximum time after which a task ends to report its commits, e.g. `1 minute` (the default)."""

    def built(self) -> ContinuousSettings:
        """Return the settings, with defaults for unset keys."""
        said = {name: value for name in ("hold", "events") if (value := getattr(self, name)) is not None}
        return ContinuousSettings(StrategyName(self.strategy or StrategyName.AUTO), **said)


_DATE = re.compile(r"\d{4}-\d\d-\d\d")

_TRUTHS = {"true": True, "false": False}

_READ: Mapping[str, Callable[[str], str | int | float | bool]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": lambda text: _TRUTHS[text.lower()],
}
"""Parsers of a string by type."""


_DAG = re.compile(r"[A-Za-z0-9_.-]+")

_LONGEST_PREFIX = 29
"""Maximum length of a prefix, so that Airflow accepts the longest DAG id with it."""

_OURS = "dynamic_table"
"""Start of every id after the prefix; a prefix that contains it could give two tables the same id."""

_LONGEST_DAG = 200
"""Maximum length of the name of a DAG, so that Airflow accepts its id."""

REFRESH_MODES = ("auto", "full", "incremental", "incremental_strict", "continuous")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _check_schedule(value: str) -> str:
    if value != NO_SCHEDULE:
        check_cron(value)
    return value


def _check_age(value: timedelta) -> timedelta:
    if value < SHORTEST_AGE:
        raise ValueError("'version_max_age' must be at least 1 hour, so that queries that read a version can end")
    return value


def _check_days(value: timedelta) -> timedelta:
    if value < _DAY or value % _DAY:
        raise ValueError("'verify_every' must be a number of days, such as 30 days")
    return value


def _check_timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ValueError, KeyError, OSError):
        message = f"there is no time zone {value!r}; use a name such as 'Europe/Berlin'"
        raise UnknownValueError(message, value, _timezones) from None
    return value


@cache
def _timezones() -> list[str]:
    # Listing the zones reads a few hundred files, so it is done only after a mistake.
    from zoneinfo import available_timezones

    return sorted(available_timezones())


def _calendar_time(value: object, info: ValidationInfo) -> object:
    # Pydantic would interpret bare digits as seconds since 1970.
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError(f"{info.field_name!r} must be a date or time such as '2024-01-01', not {value!r}")
    return value


def _check_dag(value: str) -> str:
    if not _DAG.fullmatch(value):
        raise ValueError(f"{value!r} is no name of a DAG; use letters, digits, '_', '-' and '.', for example 'sales'")
    return value


def _check_prefix(value: str) -> str:
    if not _DAG.fullmatch(value or "_") or _OURS in value:
        raise ValueError(f"{value!r} cannot begin the id of a DAG; use letters, digits, '_', '-' and '.', but not {_OURS!r}")
    return value


CalendarTime = Annotated[datetime, BeforeValidator(_calendar_time)]


class ParamDeclaration(Declaration):
    """A param of the DAG for its form, callbacks and templates; it is not available in queries."""

    # The short form is the default alone.
    model_config = ConfigDict(json_schema_extra={"type": ["object", "string", "boolean"]})

    type: Literal["string", "integer", "number", "boolean"] = "string"
    """Type of the param; default `string`."""
    default: Scalar | None = None
    """Default value; by default none."""
    choices: tuple[Scalar, ...] = ()
    """Allowed values."""
    title: Name | None = None
    """Title in the form; default: its name."""
    description: Name | None = None
    """Description in the form."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        self.built()
        return self

    def built(self) -> RunParam:
        """Return the param, with values converted to its type.

        :raises ValueError: when a value does not have it.
        """
        default = None if self.default is None else _of_type(self.type, self.default)
        choices = tuple(_of_type(self.type, choice) for choice in self.choices)
        if choices and default is not None and default not in choices:
            raise ValueError(f"the default {default!r} is none of the choices")
        return RunParam(self.type, default, choices, self.title, self.description)


def _short_param(value: object) -> object:
    """Convert a scalar, which is short for the default; ``true`` and ``false`` are booleans."""
    if isinstance(value, Flag) and value.text.lower() in _TRUTHS:
        return {"type": "boolean", "default": value}
    return {"default": value} if isinstance(value, str | Flag) else value


def _of_type(kind: str, text: str) -> str | int | float | bool:
    try:
        value = _READ[kind](text)
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no {kind}") from None
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{text!r} is no {kind}")
    return value


def _check_param_name(name: str) -> str:
    if name in RUN_PARAMS:
        raise ValueError(f"{name!r} is what every refresh can be asked for; choose another name")
    if not name.isidentifier() or is_secret_name(name):
        raise ValueError(f"{name!r} is no name for a param: it is shown, and callbacks and templates say params.{name}")
    return name


ParamName = Annotated[Name, AfterValidator(_check_param_name)]
"""A valid Python identifier that is not the name of a built-in param."""

Param = Annotated[ParamDeclaration, BeforeValidator(_short_param)]
"""A param, or only its default."""


class Settings(AirflowDeclaration, defer_build=True):
    """Settings of a table, also allowed in the defaults of a file."""

    freshness: Annotated[Name, AfterValidator(lambda value: Freshness.parse(value).text)] | None = None
    """Maximum age of the content: `1 day`, `PT30M`, `INTERVAL '1' DAY`. Determines the schedule."""
    refresh_mode: Annotated[str, BeforeValidator(_lower), OneOf("refresh mode", REFRESH_MODES)] | None = None
    """Refresh mode of the table; `auto` (the default) decides by the freshness."""
    schedule: Annotated[Name, AfterValidator(_check_schedule)] | None = None
    """Cron expression that overrides the one derived from the freshness; `none`: only updates of `on` refresh the table."""
    timezone: Annotated[Name, AfterValidator(_check_timezone)] | None = None
    """Time zone of the schedule and of the partition values, e.g. `Europe/Berlin`; default `UTC`."""
    format: Annotated[str, OneOf("table format", sink_formats)] | None = None
    """Format of the table: `iceberg` (the default), `delta`, `parquet`, `orc`, or `jdbc` for PostgreSQL."""
    atomicity: Annotated[str, OneOf("atomicity", ("staged", "none"))] | None = None
    """`staged` (the default): readers see the previous or the new version. `none`: allow a format that cannot guarantee it."""
    versions_to_keep: int | None = Field(default=None, ge=1)
    """Minimum number of versions to keep; default 10 or, with neither key of versions, fewer the older they are."""
    version_max_age: Annotated[Duration, AfterValidator(_check_age)] | None = None
    """Minimum time to keep a version after it was replaced, e.g. `7 days` (the default)."""
    verify_every: Annotated[Duration, AfterValidator(_check_days)] | None = None
    """Time in which each partition is verified once, some of them every day, e.g. `30 days`; default: none is."""
    options: Options = Field(default_factory=dict)
    """Table options, e.g. `partition.fields.ds.date-formatter: yyyy-MM-dd`."""
    spark: SparkDeclaration = Field(default_factory=SparkDeclaration)
    """Submission of the Spark job."""
    continuous: ContinuousDeclaration = Field(default_factory=ContinuousDeclaration)
    """Settings of continuous refresh, e.g. `{strategy: micro-refresh, hold: 30 minutes}`."""
    start_date: CalendarTime | None = None
    """Start of the schedule, default 1970; without an offset in the table's time zone."""
    end_date: CalendarTime | None = None
    """End of the schedule; without an offset in the table's time zone."""
    scheduler: PlainName | None = None
    """Scheduler of the table: `airflow` (the default), `dolphinscheduler`, or one from another package."""
    dag: Annotated[str, AfterValidator(_check_dag), Field(max_length=_LONGEST_DAG)] | None = None
    """Name of a DAG shared with other tables; default, and `none`: a DAG of its own."""
    dag_id_prefix: Annotated[str, AfterValidator(_check_prefix), Field(max_length=_LONGEST_PREFIX)] | None = None
    """Prefix of the DAG id, e.g. `dev_`; empty: no prefix."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=TAG_CHARACTERS)], ...] = ()
    """Tags of the DAG, added to those of the defaults."""
    params: dict[ParamName, Param] = Field(default_factory=dict)
    """Params of the DAG besides those of every refresh, for callbacks and templates: `region: eu`, or
    `level: {type: integer, default: 3, choices: [1, 3], title: Level, description: How loud}`."""


class DefaultsDeclaration(Settings, defer_build=False):
    """Defaults of tables; options, params and Spark settings are merged key by key."""

    catalog: PlainName | None = None
    """Catalog of names with fewer than three parts."""
    database: PlainName | None = None
    """Database of names with one part."""
