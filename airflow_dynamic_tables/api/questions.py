"""Models of parameters and bodies; unknown names are rejected."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from fastapi import Header, Path, Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    field_validator,
)
from pydantic.alias_generators import to_camel

from airflow_dynamic_tables.catalog.values import JobState
from airflow_dynamic_tables.core.identifiers import TableIdentifier, split_name
from airflow_dynamic_tables.core.partitions import split_partitions

MOST_TABLES = 100
"""Maximum number of tables that one request may refresh."""

PAGE, LONGEST_PAGE = 100, 1000
"""Default and maximum number of tables per page."""

LARGEST_VERSION = 2**31 - 1
"""Largest number of a version that the ledger can store."""

_NAME_CHARACTERS = 767
"""Maximum length of names, as the ledger stores them."""

_TEXT_CHARACTERS = 2000
"""Maximum length of reasons and partitions written by users."""

_EXAMPLE = "lake.sales.daily_revenue"


class Question(BaseModel):
    """Base of bodies; fields are written in camel case."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=False, str_strip_whitespace=True)


def _written(text: str) -> str:
    """Check text written by users: databases and command lines do not accept every character."""
    if all(sign.isprintable() or sign in "\n\t" for sign in text):
        return text
    raise ValueError("contains an invisible character; remove it")


Text = Annotated[str, AfterValidator(_written)]


def parsed_name(name: str) -> TableIdentifier:
    """Parse a full name of three parts. Shorter names would need the definitions, which the caller may not be allowed to read.

    :raises ValueError: if the name is invalid.
    """
    parts = split_name(_written(name))
    if len(parts) != 3:
        raise ValueError(f"{name!r} is not a full name; write catalog.database.table")
    return TableIdentifier(*parts)


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]|$)")
"""Prefix of a time; a bare number is rejected because it could be a year, a day or a second."""


def _checked_time(text: str | None) -> str | None:
    """Check a time in ISO 8601, or with a space, as schedulers written for the original API send it; empty text means no time."""
    if not text:
        return None
    try:
        if not _DATE.match(text):
            raise ValueError(text)
        return datetime.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ValueError("is not a time; write it as 2024-01-02 00:00:00 or 2024-01-02T00:00:00+00:00") from error


def _checked_partition(text: str | None) -> str | None:
    if not text:
        return None
    try:
        split_partitions(text)
    except ValueError as error:
        raise ValueError(f"{error}, with commas between several") from error
    return text


class Configuration(Question):
    """Options of a refresh besides its time. Spark settings belong in the definition."""

    model_config = ConfigDict(alias_generator=None, populate_by_name=True)

    partition: Text | None = Field(
        default=None,
        max_length=_TEXT_CHARACTERS,
        description="Partitions to refresh instead of those of the schedule time, separated by commas.",
        examples=["ds=2024-01-01"],
    )
    full_refresh: StrictBool = Field(default=False, description="Replace the complete table, whatever its partitions.")

    _partition = field_validator("partition")(_checked_partition)


def _listed(tables: object) -> object:
    """Parse names in a list. The HTTP task of DolphinScheduler sends text only."""
    return tables.split(",") if isinstance(tables, str) else tables


def _as_flag(flag: object) -> object:
    """Parse a boolean, also as text, as the HTTP task of DolphinScheduler sends it."""
    return {"true": True, "false": False}.get(flag, flag) if isinstance(flag, str) else flag


_Name = Annotated[Text, Field(max_length=_NAME_CHARACTERS)]
_NAMES = {"type": "array", "items": {"type": "string", "maxLength": _NAME_CHARACTERS}, "minItems": 1, "maxItems": MOST_TABLES}
_Tables = Annotated[
    list[_Name],
    Field(min_length=1, max_length=MOST_TABLES),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [_NAMES, {"type": "string", "minLength": 1}]}),
]


class SchedulerRefresh(Question):
    """A refresh that a workflow scheduler requests at a tick."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"tables": [_EXAMPLE], "scheduleTime": "2024-01-02 00:00:00", "isPeriodic": True, "configuration": {}},
                {"tables": [_EXAMPLE], "configuration": {"partition": "ds=2024-01-01"}},
            ]
        }
    )

    tables: _Tables = Field(
        description="Full names, in any order; a list, or text separated by commas.",
    )
    schedule_time: str | None = Field(
        default=None,
        max_length=64,
        description="The tick; without an offset, in the time zone of each table. Missing or empty: the latest tick.",
    )
    is_periodic: Annotated[StrictBool, BeforeValidator(_as_flag)] = Field(
        default=False,
        description="Whether the schedule requests the refresh; such a refresh is skipped if no input changed.",
    )
    configuration: Configuration = Field(
        default_factory=Configuration, description="`partition` (`ds=2024-01-01,ds=2024-01-02`) or `full_refresh`."
    )

    _time = field_validator("schedule_time")(_checked_time)

    @field_validator("tables")
    @classmethod
    def _are_names(cls, tables: list[str]) -> list[str]:
        names = [str(parsed_name(table)) for table in tables]
        if len(set(names)) < len(names):
            raise ValueError("contains a table twice; name each table once")
        return names


class TableRefresh(Question):
    """A refresh that a user requests. An empty body refreshes the latest tick."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{}, {"scheduleTime": "2024-01-02T00:00:00+00:00"}, {"partition": "ds=2024-01-01"}]}
    )

    schedule_time: str | None = Field(default=None, max_length=64, description="The tick; default: the latest tick of the table.")
    partition: Text | None = Field(
        default=None, max_length=_TEXT_CHARACTERS, description="Partitions to refresh, for example `ds=2024-01-01,ds=2024-01-02`."
    )
    full_refresh: StrictBool = Field(default=False, description="Replace the complete table, whatever its partitions.")
    force: StrictBool = Field(
        default=False, description="Refresh the table even if it is suspended, and frozen partitions that are named."
    )

    _time = field_validator("schedule_time")(_checked_time)
    _partition = field_validator("partition")(_checked_partition)


class Suspension(Question):
    """The suspension of a table."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the source is being migrated"}]})

    reason: Text = Field(default="", max_length=_TEXT_CHARACTERS, description="The reason, shown with the state of the table.")


class Resumption(Question):
    """The resumption of a table; it has no options."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}]})


class Drop(Question):
    """Options of dropping a table."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ifExists": True}]})

    if_exists: StrictBool = Field(default=False, description="Succeed if the table does not exist.")
    purge: StrictBool = Field(default=False, description="Also delete its files; they cannot be restored.")


class Rollback(Question):
    """A version to restore."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"version": 6}]})

    version: StrictInt = Field(ge=1, le=LARGEST_VERSION, description="The number of a retained version.")
    with_columns: StrictBool = Field(
        default=False, description="Also restore its columns and partition keys, if the table has others now."
    )


class QuarantineDecision(Question):
    """A refresh in quarantine."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": "3f1d6a5e-1c1b-4b1c-9d5e-0a4c8a1f7f11"}]})

    token: Text = Field(min_length=1, max_length=255, description="The token of the refresh, as in the history.")


class TableFilter(BaseModel):
    """Filter and page of a list of tables."""

    catalog: str | None = Field(default=None, min_length=1, max_length=255, description="Only tables of this catalog.")
    database: str | None = Field(default=None, min_length=1, max_length=255, description="Only tables of this database.")
    name: str | None = Field(
        default=None, max_length=255, description="A part of the table's name, without catalog and database; case-insensitive."
    )
    job_state: JobState | None = Field(default=None, alias="jobState", description="The state of its refreshes.")
    workflow: str | None = Field(
        default=None, max_length=_NAME_CHARACTERS, description="The workflow that refreshes it; in Airflow, the id of the DAG."
    )
    limit: int = Field(default=PAGE, ge=1, le=LONGEST_PAGE, description="The maximum number of tables.")
    after: str = Field(default="", max_length=_NAME_CHARACTERS, description="The value of `next` of the previous page.")


Name = Annotated[
    str,
    Path(
        max_length=_NAME_CHARACTERS,
        description="The full name of a table: catalog, database and table.",
        openapi_examples={"usual": {"value": _EXAMPLE}},
    ),
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Chosen by the caller, unique for each request. A repeated request returns the same job.",
        openapi_examples={"usual": {"value": "8e03978e-40d5-43dd-bc93-6894a57f9324"}},
    ),
]
Time = Annotated[
    str | None,
    Query(
        alias="scheduleTime",
        max_length=64,
        description="The tick, as in the body of a refresh; default: the latest tick of the table.",
    ),
    AfterValidator(_checked_time),
]
Partition = Annotated[
    Text | None,
    Query(max_length=_TEXT_CHARACTERS, description="Only these partitions, for example `ds=2024-01-01,ds=2024-01-02`."),
    AfterValidator(_checked_partition),
]
Limit = Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="The maximum number of results.")]
"""Page limit; each use sets its default."""
