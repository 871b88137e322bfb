"""Iceberg's REST protocol over PyIceberg's own catalog in SQLite: what a server has to say of namespaces, tables and commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import RLock
from typing import Any

from fastapi import FastAPI, Request, Response
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

_STATUS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NamespaceNotEmptyError: 409,
    TableAlreadyExistsError: 409,
    ValueError: 400,
}


class Routes:
    """The routes of one catalog; every answer is given under one lock, as by a server with a transaction for each."""

    def __init__(self, catalog: SqlCatalog, overrides: dict[str, str]) -> None:
        self.catalog = catalog
        self.table_config: dict[str, str] = {}
        self._overrides = overrides
        self._lock = RLock()

    def add_to(self, app: FastAPI) -> None:
        for method, path, answer in (
            ("GET", "/config", self._config),
            ("GET", "/namespaces", self._list_namespaces),
            ("POST", "/namespaces", self._create_namespace),
            ("HEAD", "/namespaces/{namespace}", self._load_namespace),
            ("GET", "/namespaces/{namespace}", self._load_namespace),
            ("DELETE", "/namespaces/{namespace}", self._drop_namespace),
            ("POST", "/namespaces/{namespace}/properties", self._update_namespace),
            ("GET", "/namespaces/{namespace}/tables", self._list_tables),
            ("POST", "/namespaces/{namespace}/tables", self._create_table),
            ("HEAD", "/namespaces/{namespace}/tables/{table}", self._load_table),
            ("GET", "/namespaces/{namespace}/tables/{table}", self._load_table),
            ("POST", "/namespaces/{namespace}/tables/{table}", self._commit),
            ("DELETE", "/namespaces/{namespace}/tables/{table}", self._drop_table),
            ("POST", "/tables/rename", self._rename),
        ):
            prefix = f"/{self._overrides['prefix']}" if "prefix" in self._overrides and path != "/config" else ""
            app.add_api_route(f"/v1{prefix}{path}", self._answering(answer), methods=[method], name=f"{method} {path}")

    def _answering(self, answer: Callable[..., Any]) -> Callable[[Request], Any]:
        async def route(request: Request) -> Response:
            body = await request.body()
            try:
                for _ in range(request.state.times):
                    with self._lock:
                        content = answer(body, **request.path_params)
            except tuple(_STATUS) as error:
                code = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
                return failed(code, type(error).__name__, str(error))
            if content is None:
                return Response(status_code=204)
            return Response(content if isinstance(content, str) else json.dumps(content), media_type="application/json")

        return route

    def _config(self, _: bytes) -> Any:
        return {"defaults": {}, "overrides": self._overrides}

    def _list_namespaces(self, _: bytes) -> Any:
        return {"namespaces": [list(name) for name in self.catalog.list_namespaces()]}

    def _create_namespace(self, body: bytes) -> Any:
        asked = json.loads(body)
        self.catalog.create_namespace(tuple(asked["namespace"]), asked["properties"])
        return asked

    def _load_namespace(self, _: bytes, namespace: str) -> Any:
        return {"namespace": [namespace], "properties": self.catalog.load_namespace_properties((namespace,))}

    def _drop_namespace(self, _: bytes, namespace: str) -> None:
        self.catalog.drop_namespace((namespace,))

    def _update_namespace(self, body: bytes, namespace: str) -> Any:
        asked = json.loads(body)
        done = self.catalog.update_namespace_properties((namespace,), set(asked["removals"]), asked["updates"])
        return {"removed": done.removed, "updated": done.updated, "missing": done.missing}

    def _list_tables(self, _: bytes, namespace: str) -> Any:
        self.catalog.load_namespace_properties((namespace,))
        listed = self.catalog.list_tables((namespace,))
        return {"identifiers": [{"namespace": [namespace], "name": name[-1]} for name in listed]}

    def _create_table(self, body: bytes, namespace: str) -> Any:
        asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
        self.catalog.load_namespace_properties((namespace,))
        made = self.catalog.create_table(
            (namespace, asked.name),
            asked.table_schema,
            asked.location,
            asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            properties=dict(asked.properties),
        )
        return self._shown(made)

    def _load_table(self, _: bytes, namespace: str, table: str) -> Any:
        return self._shown(self.catalog.load_table((namespace, table)))

    def _commit(self, body: bytes, namespace: str, table: str) -> Any:
        named = {"identifier": {"namespace": [namespace], "name": table}}  # which only some clients repeat
        asked = CommitTableRequest.model_validate({**named, **json.loads(body)})
        current = self.catalog.load_table((namespace, table))
        committed = self.catalog.commit_table(current, asked.requirements, asked.updates)
        return committed.model_dump_json()

    def _drop_table(self, _: bytes, namespace: str, table: str) -> None:
        self.catalog.drop_table((namespace, table))

    def _rename(self, body: bytes) -> None:
        asked = json.loads(body)
        names = ((*asked[which]["namespace"], asked[which]["name"]) for which in ("source", "destination"))
        self.catalog.rename_table(*names)

    def _shown(self, table: Table) -> Any:
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": self.table_config}


def failed(code: int, kind: str, message: str) -> Response:
    content = json.dumps({"error": {"message": message, "type": kind, "code": code}})
    return Response(content, code, media_type="application/json")
