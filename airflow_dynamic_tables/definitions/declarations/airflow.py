"""Declarations of the Airflow settings of a table, named as in Airflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, create_model

from airflow_dynamic_tables.core.schedule import Freshness
from airflow_dynamic_tables.definitions.declarations.base import Declaration, Name, OneOf, Options, Scalar
from airflow_dynamic_tables.definitions.model import KEYS, Callback, Deadline, KeyField
from airflow_dynamic_tables.yaml_files.documents import Flag

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_CALLBACK_KEYS = {"notifier", "arguments"}


def _duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return Freshness.parse(value).period
    except ValueError:
        raise ValueError(f"{value!r} is no length of time; write for example '5 minutes'") from None


def _truth(value: object) -> bool:
    if not isinstance(value, Flag):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.value


def _check_link(link: str) -> str:
    parts = urlsplit(link)
    if not (parts.path if parts.scheme == "mailto" else parts.scheme in ("http", "https") and parts.netloc):
        raise ValueError(f"{link!r} is no link; write for example https://example.org/team")
    return link


def _callbacks(value: object) -> tuple[Callback, ...]:
    return tuple(_callback(item) for item in (value if isinstance(value, list) else [value]))


def _callback(item: object) -> Callback:
    if isinstance(item, str):
        return Callback(_checked_path(item))
    if not isinstance(item, Mapping) or "notifier" not in item or not _CALLBACK_KEYS.issuperset(item):
        raise ValueError("a callback is 'module:function', or {notifier: 'module:class', arguments: {…}}")
    arguments = _argument(item.get("arguments", {}))
    if not isinstance(arguments, dict):
        raise ValueError("'arguments' of a notifier is a mapping")
    return Callback(_checked_path(item["notifier"]), arguments)


def _checked_path(path: object) -> str:
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} names nothing in Python; write 'module:name', for example 'alerts:page'")
    return path


def _argument(value: object) -> Any:
    """Convert ``true`` and ``false`` to booleans; other scalars, including numbers, are strings in this YAML loader."""
    if isinstance(value, Mapping):
        return {str(key): _argument(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_argument(item) for item in value]
    if isinstance(value, Flag):
        return value.value if value.text.lower() in ("true", "false") else value.text
    return value


def _executor_config(value: object) -> object:
    config = _argument(value)
    if isinstance(config, dict) and "pod_override" in config:
        _checked_path(config["pod_override"])
    return config


_CALLBACK_SCHEMA = {
    "anyOf": [
        {"type": "string", "examples": ["company.alerts:page"]},
        {
            "type": "object",
            "properties": {"notifier": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["notifier"],
            "additionalProperties": False,
        },
    ]
}

Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["5 minutes"]})]
"""A duration: `5 minutes`."""

Callbacks = Annotated[
    tuple[Callback, ...],
    BeforeValidator(_callbacks),
    WithJsonSchema({"anyOf": [*_CALLBACK_SCHEMA["anyOf"], {"type": "array", "items": _CALLBACK_SCHEMA}]}, mode="validation"),
]
"""One callback or several."""

ExecutorConfig = Annotated[
    dict[str, Any], BeforeValidator(_executor_config), WithJsonSchema({"type": "object"}, mode="validation")
]
"""Plain data; scalars as written."""

Truth = Annotated[bool, BeforeValidator(_truth)]
_Link = Annotated[Name, AfterValidator(_check_link)]
_Permission = Annotated[Name, OneOf("permission", ("can_read", "can_edit", "can_delete"))]


_FORMS: Mapping[Any, Any] = {
    str: Name,
    bool: Truth,
    timedelta: Duration,
    tuple[Callback, ...]: Callbacks,
    tuple[str, ...]: tuple[Name, ...],
    Mapping[str, str]: Options,
}
"""YAML types of field types that pydantic would not parse in the required form."""


def _form(each: KeyField) -> Any:
    kind = next((member for member in get_args(each.type) if get_origin(each.type) is UnionType), each.type)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return Annotated[Scalar, OneOf(each.name, tuple(kind)), AfterValidator(lambda name: kind(name))]
    return _FORMS.get(kind, kind)


def _field(each: KeyField) -> Any:
    about = Field(description=each.key.doc, **each.key.limits)
    if isinstance(each.default, tuple | dict):
        return Annotated[_form(each), about], each.default
    return Annotated[_form(each) | None, about], None


def declaration_of_keys(*, in_defaults: bool) -> type[Declaration]:
    """Return the model of the keys that :class:`DynamicTable` declares completely, each in the form of its type."""
    # The model is only a base class, which needs no validator; building one takes 10 ms at every start.
    keys = [each for each in KEYS if each.key.doc and each.key.in_defaults is in_defaults]
    return create_model(
        "KeysDeclaration",
        __base__=Declaration,
        __cls_kwargs__={"defer_build": True},
        **{each.name: _field(each) for each in keys},
    )


class DeadlineDeclaration(Declaration):
    """Deadline of a run."""

    after: Duration | None = None
    """Time after the reference, e.g. `2 hours`; default: the freshness."""
    reference: Literal["queued_at", "logical_date"] = "queued_at"
    """`queued_at` (the default): the creation of the run. `logical_date`: its tick, which a manual run does not have."""
    callback: Callbacks
    """Callback when the deadline is missed: `module:function`, or `{notifier: module:class, arguments: {…}}`."""


def _deadline(declared: DeadlineDeclaration) -> Deadline:
    return Deadline(declared.callback, declared.after, declared.reference)


_PYTHON = "what is Python stands in Python; put a DynamicTableRefreshOperator into a DAG of yours"
_ONE_AT_A_TIME = "a table is refreshed by one task at a time, whatever the schedule"
_ONE_TASK = "a refresh is one task, and comes after no other"
_MAIL = "name a notifier in 'on_failure_callback', such as airflow.providers.smtp.notifications.smtp:SmtpNotifier"
_PAGE = "use 'comment'; the page of the DAG is made of the definition"
_NAMED = "it is made of the name of the table"
_ASSETS = "the assets are the table itself and the tables that it reads"
_RESULT = "what a refresh returns is what its asset event says of the commit"

REFUSED = {
    "catchup": "the refresh of the last tick makes up for missed ones; a backfill fills earlier partitions",
    **dict.fromkeys(
        ("max_active_runs", "max_active_tasks", "max_active_tis_per_dag", "max_active_tis_per_dagrun"), _ONE_AT_A_TIME
    ),
    **dict.fromkeys(("wait_for_downstream", "trigger_rule", "fail_fast", "task_group", "map_index_template"), _ONE_TASK),
    **dict.fromkeys(("ignore_first_depends_on_past", "wait_for_past_depends_before_skipping"), "use 'depends_on_past' alone"),
    **dict.fromkeys(("email", "email_on_failure", "email_on_retry"), _MAIL),
    **dict.fromkeys(("sla", "sla_miss_callback"), "use 'deadline'"),
    **dict.fromkeys(("description", "doc", "doc_md", "doc_json", "doc_yaml", "doc_rst"), _PAGE),
    **dict.fromkeys(("dag_id", "task_id", "task_display_name", "logger_name"), _NAMED),
    **dict.fromkeys(("inlets", "outlets"), _ASSETS),
    **dict.fromkeys(("do_xcom_push", "multiple_outputs"), _RESULT),
    **dict.fromkeys(("pre_execute", "post_execute", "default_args", "allow_nested_operators", "auto_register"), _PYTHON),
    **dict.fromkeys(("template_searchpath", "template_undefined", "user_defined_macros", "user_defined_filters"), _PYTHON),
    **dict.fromkeys(("jinja_environment_kwargs", "render_template_as_native_obj"), _PYTHON),
    "retry_policy": "a refresh knows which errors another try would repeat, and is not tried again after them",
    "resources": "use 'spark' for what the job needs, and 'pool_slots' for the task",
    "run_as_user": "refreshes run as the user of the worker, who owns what they write",
    "allowed_run_types": "a run by hand and a backfill mean the same refresh as a scheduled one",
    **dict.fromkeys(
        ("disable_bundle_versioning", "rerun_with_latest_version"), "set it for all of Airflow, in its configuration"
    ),
}
"""Settings of Airflow that a table does not accept, and the reasons."""


if TYPE_CHECKING:
    _SettingKeys = Declaration
else:
    _SettingKeys = declaration_of_keys(in_defaults=True)


class AirflowDeclaration(_SettingKeys, defer_build=True):
    """Airflow settings of the DAG and its tasks."""

    refused = REFUSED

    owner_links: dict[Name, _Link] | None = None
    """Links of owners, by owner."""
    access_control: dict[Name, tuple[_Permission, ...]] | None = None
    """Permissions of Airflow roles on the DAG, e.g. `analysts: [can_read]`."""
    weight_rule: Literal["downstream", "upstream", "absolute"] | None = None
    """How weights of other tasks are included in the priority weight."""
    executor_config: ExecutorConfig | None = None
    """Executor configuration, e.g. `pod_template_file`; `pod_override: module:name` is a pod defined in Python."""
    deadline: Annotated[DeadlineDeclaration, AfterValidator(_deadline)] | None = None
    """Deadline of a run, and the callback when it is missed:
    `{after: 20 minutes, reference: queued_at, callback: company.alerts:late}`."""
