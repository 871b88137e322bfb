"""Declarations of sources."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from airflow_dynamic_tables.core.formats import FORMATS, VIEW, Endless, source_formats
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.sources import MaxAge
from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.core.streaming.source_watermarks import CompleteWhen, WholeBy, is_class_path
from airflow_dynamic_tables.core.types import check_columns
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, OneOf, Options
from airflow_dynamic_tables.exceptions import UnsupportedError

_KINDS = ("file", "quiet", "class")


def _complete_when(value: object) -> CompleteWhen:
    if value == WholeBy.METASTORE:
        return CompleteWhen(WholeBy.METASTORE)
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError("'complete_when' is metastore, {file: _SUCCESS}, {quiet: 10 minutes} or {class: module:Class}")
    kind, told_by = next(iter(value.items()))
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} tells nothing; use metastore or one of {', '.join(_KINDS)}{did_you_mean(str(kind), _KINDS)}")
    if not isinstance(told_by, str):
        raise ValueError(f"{kind!r} needs a text")
    if kind == "quiet":
        return CompleteWhen(WholeBy.QUIET, "", _period(told_by))
    if kind == "class" and not is_class_path(told_by):
        raise ValueError(f"{told_by!r} is no class; write module:Class")
    if kind == "file" and (not told_by.strip() or "/" in told_by):
        raise ValueError(f"{told_by!r} is no name of a file in the folder of a partition; write for example _SUCCESS")
    return CompleteWhen(WholeBy(kind), told_by)


def _period(text: str) -> timedelta:
    try:
        return Freshness.parse(text).period
    except ValueError:
        raise ValueError(f"{text!r} is no length of time; write for example '10 minutes'") from None


_COMPLETE_WHEN = {
    "anyOf": [
        {"const": "metastore"},
        *(
            {"type": "object", "properties": {kind: {"type": "string"}}, "required": [kind], "additionalProperties": False}
            for kind in _KINDS
        ),
    ]
}


def _max_age(value: object) -> MaxAge:
    ages = {"fail": value} if isinstance(value, str) else value
    if (
        not isinstance(ages, Mapping)
        or not ages
        or not {*ages} <= {*_AGES}
        or not all(isinstance(age, str) for age in ages.values())
    ):
        raise ValueError("'max_age' is a length of time, such as 2 hours, or {warn: 2 hours, fail: 1 day}")
    built = MaxAge(**{action: _period(age) for action, age in ages.items()})
    if built.warn is not None and built.fail is not None and built.warn >= built.fail:
        raise ValueError("'warn' must be shorter than 'fail': beyond 'fail', no refresh begins")
    return built


_AGES = (Action.WARN.value, Action.FAIL.value)

_AGE = {"type": "string", "examples": ["2 hours"]}
_MAX_AGE = {"anyOf": [_AGE, {"type": "object", "properties": dict.fromkeys(_AGES, _AGE), "additionalProperties": False}]}

Complete = Annotated[CompleteWhen, BeforeValidator(_complete_when), WithJsonSchema(_COMPLETE_WHEN, mode="validation")]
"""Completeness check of a partition."""


class EventTimeDeclaration(Declaration):
    """Event time of the rows of a source, for tables refreshed by a stream."""

    column: Name
    """The event time column, a timestamp."""
    delay: Name
    """Maximum delay of late rows, e.g. `1 minute`: a stream waits that long before it closes a window."""
    deduplicate: tuple[Name, ...] = ()
    """Columns that identify duplicate rows, e.g. `[event_id]`: the first row is kept, duplicates within the delay are dropped."""

    @field_validator("delay")
    @classmethod
    def _check_delay(cls, value: str) -> str:
        try:
            return f"{Freshness.parse(value).seconds} seconds"
        except ValueError:
            raise ValueError(f"{value!r} is no length of time; write for example '1 minute'") from None


class SourceDeclaration(Declaration):
    """An existing table that is not refreshed by these definitions."""

    name: Name
    """Name: `table`, `database.table` or `catalog.database.table`."""
    format: Annotated[str, OneOf("source format", source_formats)]
    """Format of its files, or `delta`; `iceberg`, `hive` or `jdbc` for a table of the catalog, `view` for a view of the catalog;
    `kafka` or `rate` for a source that only streams can read."""
    path: Name | None = None
    """Path or URI of the folder or file with the data, relative to this file."""
    partitioned_by: tuple[Name, ...] = ()
    """Partition keys of Hive-style folders (`ds=2024-01-01`)."""
    schema_: Name | None = Field(default=None, alias="schema")
    """Columns as Spark DDL, e.g. `id bigint, name string`; by default Spark infers them."""
    conn_id: Name | None = None
    """Airflow connection of type `kafka` for a `kafka` source, in place of option `kafka.bootstrap.servers`."""
    version_column: Name | None = None
    """Column of a `jdbc` source whose value each write of a row changes, e.g. `updated_at` or `xmin`: it shows which rows changed
    since a refresh."""
    options: Options = Field(default_factory=dict)
    """Options of Spark's reader, e.g. `header: true`, and of a watermark, e.g. `partition.time-interval: 1 hour`."""
    watermark: Literal["source"] | EventTimeDeclaration | None = None
    """`source`: only complete partitions are read, in order; each moves the watermark to its end.
    `{column: ts, delay: 1 minute}`: the time that a stream waits for late rows."""
    complete_when: Complete | None = None
    """Completeness check of a partition: `metastore`, `{file: _SUCCESS}`, `{quiet: 10 minutes}`, `{class: module:Class}`."""
    max_age: Annotated[MaxAge, BeforeValidator(_max_age), WithJsonSchema(_MAX_AGE, mode="validation")] | None = None
    """How long ago its rows may have changed last when a scheduled refresh begins, e.g. `2 hours`: otherwise it fails.
    `{warn: 2 hours, fail: 1 day}` warns first."""
    comment: str | None = None
    """Description of the table."""

    @field_validator("watermark", mode="before")
    @classmethod
    def _check_watermark(cls, value: object) -> object:
        if value is None or value == "source" or isinstance(value, Mapping):
            return value
        raise ValueError(f"{value!r} is no watermark; write source, or for example {{column: ts, delay: 1 minute}}")

    @field_validator("schema_")
    @classmethod
    def _check_schema(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                check_columns(value)
        except UnsupportedError as error:
            raise ValueError(f"{error} Write for example: id bigint, name string") from None
        return value

    @model_validator(mode="after")
    def _check_path(self) -> SourceDeclaration:
        traits = FORMATS[self.format]
        if traits.endless is not None:
            self._check_endless(traits.endless)
            return self
        if self.conn_id is not None:
            raise ValueError(f"a source of format {self.format} has no 'conn_id'; remove it")
        if traits.has_path and self.path is None:
            raise ValueError(f"a {self.format} source needs a 'path'")
        if not traits.has_path and self.path is not None:
            raise ValueError(f"a source of format {self.format} is a table of its catalog and has no 'path'; remove it")
        if self.format == VIEW and (self.schema_ or self.partitioned_by or self.options):
            raise ValueError("a view source is a view of its catalog; give it nothing but a name, a format and a comment")
        if not traits.has_columns and (self.schema_ or self.partitioned_by):
            named = f"a source of format {self.format}"
            raise ValueError(f"{named} has the columns and partition keys that the table itself has; remove them here")
        return self

    def _check_endless(self, endless: Endless) -> None:
        """Check that all required keys of an endless source are set, and no others."""
        if self.path or self.schema_ or self.partitioned_by:
            columns = ", ".join(endless.columns)
            raise ValueError(f"a {self.format} source has the columns {columns}, and no 'path'; name neither")
        if missing := next((option for option in endless.needs if not self.options.get(option)), None):
            raise ValueError(f"a {self.format} source needs option {missing!r}")
        has_address = endless.address in self.options
        if not endless.address and self.conn_id is not None:
            raise ValueError(f"a source of format {self.format} has no 'conn_id'; remove it")
        if endless.address and has_address == (self.conn_id is not None):
            wanted = f"option {endless.address!r} or 'conn_id', an Airflow connection of type {self.format}"
            raise ValueError(f"a {self.format} source needs either {wanted}")
