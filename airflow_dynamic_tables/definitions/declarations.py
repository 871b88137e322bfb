"""What may stand in a definitions file: closed pydantic models, the JSON Schema made of them, and their errors as mistakes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from airflow_dynamic_tables.core.cron import check_cron
from airflow_dynamic_tables.core.freshness import Freshness

SOURCE_FORMATS = ("parquet", "orc", "csv", "json", "iceberg")
FILE_FORMATS = ("parquet", "orc", "csv", "json")
PLANNED_SOURCE_FORMATS = ("delta", "hive", "jdbc")
SINK_FORMATS = ("iceberg", "parquet", "orc")
PLANNED_SINK_FORMATS = ("hive", "delta", "jdbc")

FORMATTER_OPTION = re.compile(r"partition\.fields\.(?P<column>.+)\.(?:date-formatter|time-formatter)")
REFRESH_MODES = ("auto", "full", "incremental", "continuous")


def _text(value: object) -> object:
    """Spark's ``true`` and ``false`` for the two YAML scalars that are not read as text."""
    return str(value).lower() if isinstance(value, bool) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _one_of(value: str, what: str, legal: Iterable[str], planned: Iterable[str] = ()) -> str:
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
_OptionText = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]}, mode="validation")]
Options = dict[Name, _OptionText]


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


class _Settings(Declaration):
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
        return value and _one_of(value, "refresh mode", REFRESH_MODES)

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
        return value and _one_of(value, "table format", SINK_FORMATS, PLANNED_SINK_FORMATS)

    @field_validator("atomicity")
    @classmethod
    def _check_atomicity(cls, value: str | None) -> str | None:
        return value and _one_of(value, "atomicity", ("staged", "none"))


class DefaultsDeclaration(_Settings):
    """What holds for every table of the file that does not say otherwise; options and Spark settings are merged key by key."""

    catalog: Name | None = None
    """Catalog of names that have less than three parts."""
    database: Name | None = None
    """Database of names that have one part."""


class TableDeclaration(_Settings):
    """A dynamic table: its content is its query, never older than its freshness."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    query: Name | None = None
    """The SELECT (Spark SQL) whose result is the table."""
    query_file: Name | None = None
    """File with the query instead, relative to this file and below its folder."""
    comment: str | None = None
    """What the table is, for readers."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys: columns that the query returns."""
    columns: dict[Name, str] = Field(default_factory=dict)
    """Comments of columns, by column name."""

    @model_validator(mode="after")
    def _check_query(self) -> TableDeclaration:
        if (self.query is None) == (self.query_file is None):
            raise ValueError("a dynamic table needs either 'query' or 'query_file'")
        return self


class SourceDeclaration(Declaration):
    """A table that exists already and that nobody here refreshes."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    format: Annotated[str, Field(json_schema_extra={"enum": list(SOURCE_FORMATS)})]
    """Format of its files, or `iceberg` for an Iceberg table of the catalog."""
    path: Name | None = None
    """Folder or file that holds the data: a path or a URI; relative to this file."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys of Hive-style folders (`ds=2024-01-01`)."""
    schema_: Name | None = Field(default=None, alias="schema")
    """Columns as Spark DDL, e.g. `id bigint, name string`; left out, Spark infers them."""
    options: Options = Field(default_factory=dict)
    """Options of Spark's reader, e.g. `header: true`."""
    comment: str | None = None
    """What the table is, for readers."""

    @field_validator("format")
    @classmethod
    def _check_format(cls, value: str) -> str:
        return _one_of(value, "source format", SOURCE_FORMATS, PLANNED_SOURCE_FORMATS)

    @model_validator(mode="after")
    def _check_path(self) -> SourceDeclaration:
        if self.format in FILE_FORMATS and self.path is None:
            raise ValueError(f"a {self.format} source needs a 'path'")
        if self.format == "iceberg" and self.path is not None:
            raise ValueError("an iceberg source is a table of its catalog and has no 'path'; remove it")
        return self


class ViewDeclaration(Declaration):
    """A named query that expands inside the queries that read it."""

    name: Name
    """Name: `view`, `database.view` or `catalog.database.view`."""
    query: Name
    """The SELECT (Spark SQL)."""
    comment: str | None = None
    """What the view is, for readers."""


class FileDeclaration(Declaration):
    """A definitions file of airflow-dynamic-tables."""

    defaults: DefaultsDeclaration = Field(default_factory=DefaultsDeclaration)
    """What holds for every table of this file that does not say otherwise."""
    sources: tuple[SourceDeclaration, ...] = ()
    """Tables that exist already and that nobody here refreshes."""
    views: tuple[ViewDeclaration, ...] = ()
    """Named queries that expand inside other queries."""
    dynamic_tables: tuple[TableDeclaration, ...] = ()
    """The tables to keep fresh."""


def definitions_schema() -> dict[str, Any]:
    """JSON Schema of a definitions file, for editors."""
    schema = FileDeclaration.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Dynamic tables", **schema}
