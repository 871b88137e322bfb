"""Airflow's public REST API, asked from within its own api-server: no network, no address, and the caller's own rights."""

from __future__ import annotations

import httpx
from anyio import from_thread
from starlette.types import ASGIApp

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.schedulers.airflow_api import AirflowApi
from airflow_dynamic_tables.schedulers.http import Address

AT_ONCE = 8
"""Requests of the gateway that are answered at once. Each may hold two of the 40 threads of an api-server: its own, and one of
what it asks of Airflow. So none waits for a thread that waits itself, and catalogs that hang leave Airflow its own pages."""

_ADDRESS = Address("Airflow", "the login of the caller", "http://airflow")


class InProcessTransport(httpx.BaseTransport):
    """Has requests answered by an application on the event loop of its server; for the worker threads of that server."""

    def __init__(self, application: ASGIApp) -> None:
        self._transport = httpx.ASGITransport(application, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and wait for the whole answer."""
        return from_thread.run(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(await answer.aread()))


def airflow_as(token: str, airflow: ASGIApp) -> AirflowApi:
    """Airflow's API with the token that a caller is logged in by: what they may not do there, Airflow refuses.

    :param airflow: the application that the gateway is mounted in.
    """
    return AirflowApi(_ADDRESS, Connection(extra={"token": token}), InProcessTransport(airflow))
