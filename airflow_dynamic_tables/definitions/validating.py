"""Converts pydantic errors to mistakes, with the position and terms of the YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from airflow_dynamic_tables.core.limits import MISTAKES_PER_FILE
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.refresh.spark_settings import RENDERED, asks_airflow, decides_rows
from airflow_dynamic_tables.definitions.declarations.base import Declaration
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.yaml_files.documents import Document, Flag, Location
from airflow_dynamic_tables.yaml_files.variables import mentions_variable, scalars

_Model = TypeVar("_Model", bound=Declaration)


def validate(
    model: type[_Model], data: object, document: Document, location: Location, room: int = MISTAKES_PER_FILE
) -> tuple[_Model | None, list[Mistake]]:
    """Validate one entry; with mistakes, still return it without the invalid keys, if these are optional.

    :param room: how many mistakes are described; with 0, a single mistake states that there are some, and nothing is returned.
    """
    if isinstance(data, Mapping) and (empty := dict.fromkeys(key for key, value in data.items() if value is None)):
        rest, mistakes = validate(model, {key: data[key] for key in data if key not in empty}, document, location, room)
        shown = islice(empty, room + 1)
        nothing = [document.mistake((*location, key), f"{key!r} has no value; give one or remove the key") for key in shown]
        # Missing values caused by dropped keys are not reported again.
        start = document.mistake(location, "")
        others = [mistake for mistake in mistakes if (mistake.line, mistake.column) != (start.line, start.column)]
        return rest, others + nothing
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        if room < 1:
            return None, [document.mistake(location, "has mistakes, too")]
        details = error.errors(include_url=False)
    mistakes = [_mistake(model, detail, document, location) for detail in details[:room]]
    wrong = {detail["loc"][0] for detail in details if detail["loc"]}
    if not isinstance(data, Mapping) or wrong.isdisjoint(data):
        return None, mistakes
    rest, _ = validate(model, {key: value for key, value in data.items() if key not in wrong}, document, location, room=0)
    return rest, mistakes


_SQL = ("query", "expectations")
"""Keys in which ``${NAME}`` and ``{{ … }}`` are passed to Spark unchanged."""

_FREE_TEXTS = ("comment", "columns")


def takes_variables(model: type[Declaration], key: str) -> bool:
    """Return whether ``${NAME}`` in a key is an environment variable: in settings, but not in keys that define the table."""
    return key in (("path", "options") if model is SourceDeclaration else DefaultsDeclaration.model_fields)


def misplaced(model: type[Declaration], location: Location, value: object) -> Iterator[tuple[Location, str]]:
    """Yield variables and templates below a key of an entry that would not be resolved, and the reasons.

    :param location: position of the value; the key is its last step.
    """
    key = str(location[-1])
    if key in _SQL:
        return
    for place, text in scalars(value, location):
        # Notifiers render their own arguments.
        is_of_callback = any(str(step).endswith("callback") for step in place)
        if not is_of_callback and asks_airflow(text) and (problem := _not_rendered(key, place[len(location) :])):
            yield place, problem
        if not takes_variables(model, key) and key not in _FREE_TEXTS and mentions_variable(text):
            yield place, f"{key!r} takes no variable of the environment; settings and paths do"


def _not_rendered(key: str, below: Location) -> str | None:
    instead = "write ${NAME} for a variable of the environment"
    if key != "spark" or below[0] not in RENDERED:
        texts = ", ".join(RENDERED)
        return f"Airflow renders no template in {str((key, *below)[-1])!r}, only in these texts of 'spark': {texts}; {instead}"
    if below[0] == "conf" and decides_rows(str(below[1])):
        return f"{below[1]!r} decides which rows there are, and is planned before Airflow renders it; {instead}"
    return None


def _mistake(model: type[Declaration], detail: ErrorDetails, document: Document, location: Location) -> Mistake:
    inner = tuple(step for step in detail["loc"] if step != "[key]")
    message = _message(model, detail, inner)
    if detail["type"] == "extra_forbidden":
        return document.key_mistake((*location, *inner), message)
    if detail["type"] == "missing":
        return document.mistake((*location, *inner[:-1]), message)
    return document.mistake((*location, *inner), message)


def _message(model: type[Declaration], detail: ErrorDetails, inner: Location) -> str:
    kind = detail["type"]
    value = detail["input"]
    if not inner and kind in ("model_type", "model_attributes_type"):
        return f"must be a mapping such as {{name: …}}, not {_kind(value)}"
    key = next((str(step) for step in reversed(inner) if isinstance(step, str)), "it")
    if kind == "extra_forbidden":
        closed = _model_at(model, inner[:-1])
        why = closed.refused.get(key)
        return f"{key!r} is not taken: {why}" if why else f"unknown key {key!r}{did_you_mean(key, _keys_of(closed))}"
    if kind == "missing":
        return f"{key!r} is missing"
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if value is None:
        return f"{key!r} has no value; give one or remove the key"
    if kind == "string_type":
        given = f"{str(value.value).lower()}; put it in quotes" if isinstance(value, Flag) else _kind(value)
        return f"{key!r} must be text, not {given}"
    if kind in ("string_too_short", "too_short"):
        return f"{key!r} must not be empty"
    if kind == "string_too_long":
        return f"{key!r} must have at most {detail['ctx']['max_length']} letters"
    if kind == "literal_error":
        return f"{value!r} is no {key}; use {detail['ctx']['expected']}"
    if kind in (*_NUMBERS, *_BOUNDS):
        bound = _BOUNDS[kind].format(**detail["ctx"]) if kind in _BOUNDS else ""
        is_whole = not kind.startswith("float") and not any(isinstance(limit, float) for limit in detail.get("ctx", {}).values())
        return f"{key!r} must be a {'whole number' if is_whole else 'number'}{bound}, not {value!r}"
    wanted = _WANTED.get(kind, detail["msg"])
    return f"{key!r} must be {wanted}, not {_kind(value)}"


_NUMBERS = ("int_parsing", "int_type", "int_from_float", "float_parsing", "float_type")

_BOUNDS = {"greater_than_equal": " of at least {ge}", "less_than_equal": " of at most {le:,}"}

_WANTED = {
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "time_delta_type": "text such as '5 minutes'",
    "datetime_from_date_parsing": "a date or time such as '2024-01-01'",
    "datetime_parsing": "a date or time such as '2024-01-01'",
    "datetime_type": "a date or time such as '2024-01-01'",
}


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)


def _model_at(model: type[Declaration], path: Location) -> type[Declaration]:
    current = model
    for step in path:
        field = current.model_fields.get(str(step))
        current = (_model_in(field.annotation) if field else None) or current
    return current


def _keys_of(model: type[Declaration]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[Declaration] | None:
    """Return the model in an annotation such as ``Model | None`` or ``tuple[Model, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, Declaration):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
