"""Events of OpenLineage as its transports write them, checked against the schemas of the specification, without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde

from airflow_dynamic_tables.operators.lineage.refresh_facet import DynamicTableRefreshRunFacet

_OWN = files("airflow_dynamic_tables.operators.lineage") / "DynamicTableRefreshRunFacet.json"
_OWN_URL = DynamicTableRefreshRunFacet._get_schema().partition("#")[0]
_SCHEMAS = Path(__file__).parent / "openlineage_schemas"
_FORMATS = FormatChecker(["uuid"])
_FORMATS.checks("date-time", raises=ValueError)(lambda text: datetime.fromisoformat(text).tzinfo is not None)


def as_written(event: RunEvent) -> dict[str, Any]:
    """Return the JSON of an event after checking it."""
    written: dict[str, Any] = json.loads(Serde.to_json(event))
    check_event(written)
    return written


def check_event(event: Mapping[str, Any]) -> None:
    """Check an event and its facets against the schemas that they name, in the version that they name."""
    _check(event, event["schemaURL"])
    datasets = [*event["inputs"], *event["outputs"]]
    for dataset in datasets:
        assert dataset["namespace"], dataset
        assert dataset["name"], dataset
    for holder in (event["run"], event["job"], *datasets):
        for key in holder.keys() & {"facets", "inputFacets", "outputFacets"}:
            for name, facet in holder[key].items():
                _check_facet(name, facet)


def _check_facet(name: str, facet: Mapping[str, Any]) -> None:
    """Check a facet, its name, and that it has no unknown field: the schemas allow additional ones."""
    url = facet["_schemaURL"]
    _check(facet, url)
    schema = _schemas()[url.partition("#")[0]]
    if "properties" in schema:  # not the base facet, which the facets of Airflow's provider name
        assert schema["properties"] == {name: {"$ref": f"#{url.partition('#')[2]}"}}, name
        own = schema["$defs"][url.rpartition("/")[2]]["allOf"][1]["properties"]
        assert facet.keys() <= own.keys() | {"_producer", "_schemaURL"}, name


def _check(value: object, url: str) -> None:
    Draft202012Validator({"$ref": url, "$defs": _schemas()}, format_checker=_FORMATS).validate(value)


@cache
def _schemas() -> dict[str, Any]:
    """Return the vendored schemas by their ``$id``, and the schema of the provider's own facet by its URL."""
    vendored = [json.loads(path.read_text()) for path in _SCHEMAS.glob("*.json")]
    own = {**json.loads(_OWN.read_text()), "$id": _OWN_URL}
    return {schema["$id"]: schema for schema in (own, *vendored)}
