"""What a table may say itself or take from the file's defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from math import isfinite
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from airflow_dynamic_tables.core.limits import TAG_CHARACTERS
from airflow_dynamic_tables.core.schedule.cron import check_cron
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.tables.formats import sink_formats
from airflow_dynamic_tables.core.tables.retention import SHORTEST_AGE
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
from airflow_dynamic_tables.definitions.declarations.continuous import ContinuousDeclaration
from airflow_dynamic_tables.definitions.declarations.spark import SparkDeclaration
from airflow_dynamic_tables.definitions.model import NO_SCHEDULE, RUN_PARAMS, RunParam
from airflow_dynamic_tables.redaction import is_secret_name
from airflow_dynamic_tables.yaml_files.documents import Flag

_DATE = re.compile(r"\d{4}-\d\d-\d\d")

_TRUTHS = {"true": True, "false": False}

_READ: Mapping[str, Callable[[str], str | int | float | bool]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": lambda text: _TRUTHS[text.lower()],
}
"""How a text becomes a value of a type."""


_DAG = re.compile(r"[A-Za-z0-9_.-]+")

_LONGEST_PREFIX = 29
"""Letters before the longest id of a DAG that Airflow takes with them."""

_OURS = "dynamic_table"
"""How the rest of every id begins; with that in a prefix, two tables could have one id."""

_LONGEST_DAG = 200
"""Letters of the name of a DAG, so that its id has no more than Airflow takes."""

REFRESH_MODES = ("auto", "full", "incremental", "continuous")


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _check_schedule(value: str) -> str:
    if value != NO_SCHEDULE:
        check_cron(value)
    return value


def _check_age(value: timedelta) -> timedelta:
    if value < SHORTEST_AGE:
        raise ValueError("'version_max_age' must be at least 1 hour: whoever still reads a version needs time to end")
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
    # Listing the zones reads a few hundred files, so only a mistake does it.
    from zoneinfo import available_timezones

    return sorted(available_timezones())


def _calendar_time(value: object, info: ValidationInfo) -> object:
    # Pydantic would take bare digits for seconds since 1970.
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
    """A param of the DAG, for its form, for callbacks and for templates; no query sees it."""

    # Its default alone is a short form of it.
    model_config = ConfigDict(json_schema_extra={"type": ["object", "string", "boolean"]})

    type: Literal["string", "integer", "number", "boolean"] = "string"
    """What it is; `string` is the default."""
    default: Scalar | None = None
    """What it is when nobody says otherwise; left out: nothing."""
    choices: tuple[Scalar, ...] = ()
    """The only values that it may have."""
    title: Name | None = None
    """What the form calls it; default: its name."""
    description: Name | None = None
    """What it is for, for the form."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        self.built()
        return self

    def built(self) -> RunParam:
        """The param, with values of its type.

        :raises ValueError: when one is not.
        """
        default = None if self.default is None else _of_type(self.type, self.default)
        choices = tuple(_of_type(self.type, choice) for choice in self.choices)
        if choices and default is not None and default not in choices:
            raise ValueError(f"the default {default!r} is none of the choices")
        return RunParam(self.type, default, choices, self.title, self.description)


def _short_param(value: object) -> object:
    """Text alone is the default; ``true`` and ``false`` are what they look like."""
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
"""A name that Python can say, and that no other param has."""

Param = Annotated[ParamDeclaration, BeforeValidator(_short_param)]
"""A param, or its default alone."""


class Settings(AirflowDeclaration, defer_build=True):
    """What a table may say itself or take from the file's defaults."""

    freshness: Annotated[Name, AfterValidator(lambda value: Freshness.parse(value).text)] | None = None
    """How old the content may be: `1 day`, `PT30M`, `INTERVAL '1' DAY`. Gives the schedule."""
    refresh_mode: Annotated[str, BeforeValidator(_lower), OneOf("refresh mode", REFRESH_MODES)] | None = None
    """How the table is refreshed; `auto` (the default) decides by the freshness."""
    schedule: Annotated[Name, AfterValidator(_check_schedule)] | None = None
    """Cron expression that overrides the one derived from the freshness; `none`: only what `on` names refreshes the table."""
    timezone: Annotated[Name, AfterValidator(_check_timezone)] | None = None
    """Time zone of the schedule and of the partition values, e.g. `Europe/Berlin`; default `UTC`."""
    format: Annotated[str, OneOf("table format", sink_formats)] | None = None
    """Format of the table: `iceberg` (the default), `delta`, `parquet`, `orc`, or `jdbc` for PostgreSQL."""
    atomicity: Annotated[str, OneOf("atomicity", ("staged", "none"))] | None = None
    """`staged` (the default): readers see the last version or the new one. `none`: allow a format that cannot do that."""
    versions_to_keep: int | None = Field(default=None, ge=1)
    """How many versions are kept at least; default 10, or, with neither key of versions, fewer the older they are."""
    version_max_age: Annotated[Duration, AfterValidator(_check_age)] | None = None
    """How long a version is kept at least after another took its place, e.g. `7 days` (the default)."""
    options: Options = Field(default_factory=dict)
    """Table options, e.g. `partition.fields.ds.date-formatter: yyyy-MM-dd`."""
    spark: SparkDeclaration = Field(default_factory=SparkDeclaration)
    """How the Spark job is submitted."""
    continuous: ContinuousDeclaration = Field(default_factory=ContinuousDeclaration)
    """How the table is kept fresh while it is refreshed all the time, e.g. `{strategy: micro-refresh, hold: 30 minutes}`."""
    start_date: CalendarTime | None = None
    """First time the schedule may run, default 1970; without an offset it is in the table's time zone."""
    end_date: CalendarTime | None = None
    """Last time the schedule may run; without an offset it is in the table's time zone."""
    scheduler: PlainName | None = None
    """Who has the table refreshed: `airflow` (the default), `dolphinscheduler`, or one that another package brings."""
    dag: Annotated[str, AfterValidator(_check_dag), Field(max_length=_LONGEST_DAG)] | None = None
    """Name of the DAG that the table shares with others that say the same; default, and `none`: it has a DAG of its own."""
    dag_id_prefix: Annotated[str, AfterValidator(_check_prefix), Field(max_length=_LONGEST_PREFIX)] | None = None
    """How the id of its DAG begins, e.g. `dev_`; empty: as without."""
    tags: tuple[Annotated[str, Field(min_length=1, max_length=TAG_CHARACTERS)], ...] = ()
    """Tags of the DAG; a table adds its own to the defaults."""
    params: dict[ParamName, Param] = Field(default_factory=dict)
    """Params of the DAG besides those of every refresh, for callbacks and templates: `region: eu`, or
    `level: {type: integer, default: 3, choices: [1, 3], title: Level, description: How loud}`."""
