"""Response models, derived from the dataclasses that services return: fields, descriptions, examples."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field as DataclassField
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache, wraps
from itertools import pairwise
from textwrap import dedent
from types import NoneType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.alias_generators import to_camel

from airflow_dynamic_tables.api.access import Right, requires
from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.results import plain

TABLE = "lake.sales.daily_revenue"
TIME = "2024-01-02T00:00:00Z"

_EXAMPLES: Mapping[str, Any] = {
    "identifier": TABLE,
    "table": TABLE,
    "token": "3f1d6a5e-1c1b-4b1c-9d5e-0a4c8a1f7f11",
    "job_id": "0b8fcf1e8c0f4f0c8d52c0d6f6f2f5a4",
    "caller": "ann",
    "cluster_info": {"clusterType": "process", "clusterId": "worker-1"},
    "format": DEFAULT_FORMAT,
    "refresh_mode": "FULL",
    "freshness": "1 day",
    "freshness_seconds": 86400,
    "workflow_id": "dynamic_table__lake__sales__daily_revenue",
    "snapshot": "8271638172636",
    "type": "decimal(18,2)",
    "cron": "0 0 * * *",
    "timezone": "UTC",
    "query": "SELECT ds, sum(amount) AS revenue FROM raw.orders GROUP BY ds",
    "place": "definitions/sales.yaml:12",
    "sources": {"lake.raw.orders": "8271638172636"},
    "referenced": {"lake.crm.customers": "5120984312873"},
    "location": "/warehouse/sales/daily",
}
"""Examples of fields by name; other fields have an example of their type."""

_EXAMPLE_OF_TYPE: Mapping[Any, Any] = {
    bool: False,
    int: 7,
    float: 4.2,
    datetime: TIME,
    TableIdentifier: TABLE,
    Mapping[str, float]: {"spark": 4.2},
    Any: "1 day",
}


class ResultModel(BaseModel):
    """Base model of results, with fields in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


@cache
def model_of(result: type) -> type[ResultModel]:
    """Return the model of a dataclass; the models of all dataclasses in its fields are derived, too, and kept by name.

    The docstring of a field is its description.
    """
    hints = get_type_hints(result)
    told = _descriptions(result)
    definitions: dict[str, Any] = {
        name: (_json_type(hints[name]), Field(description=told.get(name))) for name in (field.name for field in fields(result))
    }
    model = create_model(result.__name__, __base__=ResultModel, __doc__=inspect.cleandoc(result.__doc__ or ""), **definitions)
    model.model_config["json_schema_extra"] = {"examples": [example(result)]}
    return model


def models() -> Iterator[type[ResultModel]]:
    """Return all derived models."""
    yield from ResultModel.__subclasses__()


def example(result: type) -> dict[str, Any]:
    """Return an example of a result as JSON."""
    hints = get_type_hints(result)
    return {to_camel(field.name): _example_of(field, hints[field.name]) for field in fields(result)}


def _example_of(field: DataclassField[Any], hint: Any) -> Any:
    return _EXAMPLES[field.name] if field.name in _EXAMPLES else _example(hint)


def _example(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is PartitionSet:
        return [{"ds": "2024-01-01"}]
    if is_dataclass(hint) and isinstance(hint, type) and hint is not TableIdentifier:
        return example(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint)).value
    if NoneType in arguments:
        return _example(next(one for one in arguments if one is not NoneType))
    if origin in (tuple, list):
        return [_example(arguments[0])]
    if origin is not None and issubclass(origin, Mapping):
        return _EXAMPLE_OF_TYPE.get(hint, {})
    return _EXAMPLE_OF_TYPE.get(hint, "…")


def _json_type(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is TableIdentifier:
        return str
    if hint is PartitionSet:
        return list[dict[str, str | None]] | None
    if is_dataclass(hint) and isinstance(hint, type):
        return model_of(hint)
    if NoneType in arguments:
        return Union[tuple(map(_json_type, arguments))]  # noqa: UP007 - built from the members
    if origin in (tuple, list):
        return list[_json_type(arguments[0])]  # type: ignore[misc]  # built from the member
    if origin is not None and issubclass(origin, Mapping):
        return dict[str, _json_type(arguments[1])]  # type: ignore[misc]  # built from the member
    return hint


def _descriptions(result: type) -> dict[str, str]:
    told: dict[str, str] = {}
    for kind in reversed([one for one in result.__mro__ if is_dataclass(one)]):
        try:
            (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
        except OSError:  # created by a call
            continue
        for field, text in pairwise(getattr(definition, "body", ())):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                told[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return told


class ResultRouter(APIRouter):
    """Router for routes that return dataclasses; the response model is derived from the dataclass.

    A route of ``GET`` requires the right to read. Every other route declares its right by
    :func:`~airflow_dynamic_tables.api.access.requires`.
    """

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """See :meth:`APIRouter.add_api_route`."""
        model = model_of(get_type_hints(endpoint)["return"])

        @wraps(endpoint)
        def answer(*arguments: Any, **named: Any) -> Any:
            return plain(endpoint(*arguments, **named))  # FastAPI validates it by the model

        if not options.get("openapi_extra"):
            if options["methods"] != ["GET"]:
                raise TypeError(f"{path} declares no right; add openapi_extra=requires(...)")
            options["openapi_extra"] = requires(Right.READ)
        super().add_api_route(path, answer, **{**options, "response_model": model})
