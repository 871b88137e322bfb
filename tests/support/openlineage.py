"""Events of OpenLineage as its transports write them, checked against the client's classes, which are generated from the schemas.

The schemas themselves are in none of the packages, and openlineage.io is not asked by tests.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib.resources import files
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import jsonschema
from openlineage.client import generated
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde

_OWN = json.loads((files("airflow_dynamic_tables.operators.lineage") / "DynamicTableRefreshRunFacet.json").read_text())
_RUN_FACET = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"
_FACET_KEYS = {"_producer", "_schemaURL", "_deleted"}


def as_written(event: RunEvent) -> dict[str, Any]:
    """Return the JSON of an event after checking it."""
    written: dict[str, Any] = json.loads(Serde.to_json(event))
    check_event(written)
    return written


def check_event(event: Mapping[str, Any]) -> None:
    """Check each field and facet of an event: none is unknown, missing or of another type."""
    _check(RunEvent, event, "event")
    for dataset in (*event["inputs"], *event["outputs"]):
        assert dataset["namespace"], dataset
        assert dataset["name"], dataset
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for facets in [holder.get(key) or {} for holder in holders for key in ("facets", "inputFacets", "outputFacets")]:
        for name, facet in facets.items():
            _check_facet(name, facet)


def _check_facet(name: str, facet: Mapping[str, Any]) -> None:
    assert facet["_producer"], name
    kind = facet["_schemaURL"].rpartition("/")[2]
    if kind == "DynamicTableRefreshRunFacet":
        own = {**_OWN["$defs"][kind]}
        own["allOf"] = [part for part in own["allOf"] if part != {"$ref": _RUN_FACET}]
        jsonschema.validate(facet, own)
        assert set(facet) - _FACET_KEYS <= set(own["allOf"][0]["properties"]), name
    elif (cls := _generated().get(kind)) is not None:
        assert facet["_schemaURL"] == cls._get_schema(), name
        _check(cls, {key: value for key, value in facet.items() if key not in _FACET_KEYS}, name)


@cache
def _generated() -> dict[str, Any]:
    modules = [importlib.import_module(f"{generated.__name__}.{each.name}") for each in pkgutil.iter_modules(generated.__path__)]
    return {name: cls for module in modules for name, cls in vars(module).items() if attrs.has(cls)}


def _check(kind: Any, value: Any, place: str) -> None:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        fitting = [each for each in arguments if each is not NoneType]
        if value is not None:
            _check(fitting[0], value, place)
    elif origin is list:
        assert isinstance(value, list), place
        for each in value:
            _check(arguments[0], each, place)
    elif origin is dict:
        assert isinstance(value, dict), place
        if not place.rpartition(".")[2].endswith(("facets", "Facets")):
            for key, each in value.items():
                _check(arguments[1], each, f"{place}.{key}")
    elif attrs.has(kind):
        _check_fields(kind, value, place)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        assert value in [member.value for member in kind], f"{place}: {value}"
    elif kind is float:
        assert isinstance(value, float | int), place
    elif kind is not Any:
        assert type(value) is kind, f"{place}: {value!r} is no {kind}"


def _check_fields(cls: Any, value: Any, place: str) -> None:
    assert isinstance(value, dict), place
    known = {field.name: field for field in attrs.fields(cls) if field.name not in _FACET_KEYS}
    assert set(value) <= set(known), f"{place} has unknown fields: {set(value) - set(known)}"
    required = {name for name, field in known.items() if field.default is attrs.NOTHING}
    assert required <= set(value), f"{place} lacks {required - set(value)}"
    hints = get_type_hints(cls)
    for name, each in value.items():
        _check(hints[name], each, f"{place}.{name}")
