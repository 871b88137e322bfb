"""The FastAPI app: routes behind the gate, and the OpenAPI document."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request

from airflow_dynamic_tables.api.desk import AppComponents
from airflow_dynamic_tables.api.gate import Gate
from airflow_dynamic_tables.api.problems import MEDIA_TYPE, TYPES, Problem, add_handlers
from airflow_dynamic_tables.api.results import models
from airflow_dynamic_tables.api.routes import changes, refreshes, tables
from airflow_dynamic_tables.exceptions import InvalidFieldError

_DESCRIPTION = """Tables that keep themselves fresh: show, refresh, suspend, resume and drop them.

A refresh is a job: the request returns its ID at once, and `GET /v3/jobs/{jobId}` returns its state.
Errors are problem documents of RFC 9457; each says how to fix the problem."""


def make_app(gateway: AppComponents) -> FastAPI:
    """Return the app of an installation. Its paths begin with ``/v3``; it must be mounted so that they are kept.

    The routes are plain functions, which Starlette runs in threads, so the event loop is never blocked.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        gateway.workspaces.close()

    app = FastAPI(
        title="Dynamic tables",
        version=version("airflow-dynamic-tables"),
        description=_DESCRIPTION,
        openapi_url="/v3/openapi.json",
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        lifespan=lifespan,
        responses={status: _problem(status) for status in (400, 401, 403, 500, 503)},
        redirect_slashes=False,
        dependencies=[Depends(_check_parameters)],
    )
    app.state.gateway = gateway
    for router in (refreshes.router, tables.router, changes.router):
        app.include_router(router)
    add_handlers(app)
    app.add_middleware(Gate, gateway=gateway)
    _describe(app, gateway)
    app.openapi()  # generate it now, so that two concurrent requests do not
    return app


def _check_parameters(request: Request) -> None:
    """Reject query parameters that OpenAPI does not define or that occur twice, so that a mistyped filter is not ignored.

    :raises InvalidFieldError: if there is such a parameter.
    """
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
    for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            raise InvalidFieldError(f"query.{name}", "is unknown; remove it, or look up the correct name in openapi.json")
        if times > 1:
            raise InvalidFieldError(f"query.{name}", "is given more than once; give it once")


def _problem(status: int) -> dict[str, Any]:
    """Return the OpenAPI description of a problem response."""
    return {"description": TYPES[status][1], "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


def _describe(app: FastAPI, gateway: AppComponents) -> None:
    """Add security schemes and problem responses to the OpenAPI document."""
    made = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            components = schema.setdefault("components", {})
            components["securitySchemes"] = {name: dict(how) for name, how in gateway.access.security_schemes.items()}
            schema["security"] = [{name: []} for name in gateway.access.security_schemes]
            models = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            components.setdefault("schemas", {}).update({**models.pop("$defs", {}), "Problem": models})
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            _name_problems(schema)
            _complete_examples(components["schemas"])
        return app.openapi_schema or {}

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation has it


def _complete_examples(schemas: dict[str, Any]) -> None:
    """Restore the null values that FastAPI drops from examples, where they are meaningful."""
    for model in models():
        extra = model.model_config.get("json_schema_extra")
        if model.__name__ in schemas and isinstance(extra, dict):
            schemas[model.__name__]["examples"] = extra["examples"]


def _name_problems(schema: dict[str, Any]) -> None:
    """Declare the problem responses (404, 405 and so on) of every route, including those that the framework answers itself."""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            also = [422, *([404] if "{" in path or method == "post" else []), *([409, 413, 415] if method == "post" else [])]
            operation["responses"].update({str(status): _problem(status) for status in also})
