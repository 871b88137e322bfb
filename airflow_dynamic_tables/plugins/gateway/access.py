"""Access to the gateway: protection against cross-site requests, and Airflow's logins and permissions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.models.dag import DagModel
from fastapi import HTTPException, Request

from airflow_dynamic_tables.api.access import Access, Caller, GuardedTable, Right
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ForbiddenError, UnauthenticatedError
from airflow_dynamic_tables.plugins.gateway.origins import why_foreign

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod


_ASKED: Mapping[Right, tuple[ResourceMethod, DagAccessEntity | None]] = {
    Right.READ: ("GET", None),
    Right.REFRESH: ("POST", DagAccessEntity.RUN),
    Right.CHANGE: ("PUT", None),
    Right.DROP: ("DELETE", None),
}
"""Permissions that Airflow's API requires to show, trigger, pause and delete a DAG."""


@dataclass(frozen=True, slots=True)
class Login:
    """An Airflow user, and the user's token for Airflow's API.

    The token is missing only with an auth manager that permits access without login.
    """

    user: BaseUser
    token: str | None = field(repr=False)


class AirflowAccess(Access):
    """Authentication by Airflow, and authorization by DAG."""

    @property
    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """The security schemes: a token of Airflow's ``/auth/token``, or the cookie of its UI."""
        return {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE_NAME_JWT_TOKEN},
        }

    async def caller(self, request: Request) -> Caller:
        """Return the Airflow user of a request, as in Airflow's API.

        :raises UnauthenticatedError: if there is no login, or it has expired.
        :raises ForbiddenError: if a modifying request has a foreign origin.
        """
        bearer = await bearer_scheme(request)
        try:
            user = await get_user(request, None, bearer)
        except HTTPException as error:
            raise UnauthenticatedError(f"{error.detail}; POST /auth/token gives a token for Authorization: Bearer.") from error
        if why := why_foreign(request):
            raise ForbiddenError(why)
        token = bearer.credentials if bearer else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
        return Caller(user.get_name(), Login(user, token))

    def allowed(self, caller: Caller, right: Right, tables: Collection[GuardedTable]) -> set[TableIdentifier]:
        """Return the tables whose DAGs the caller has the right to, whether or not the DAGs exist in Airflow."""
        dag_ids = {table.workflow_id for table in tables}
        teams = DagModel.get_dag_id_to_team_name_mapping(sorted(dag_ids))
        of_team: dict[str | None, set[str]] = defaultdict(set)
        for dag_id in dag_ids:
            of_team[teams.get(dag_id)].add(dag_id)
        permitted: set[str] = set()
        for team, its_dags in of_team.items():
            permitted |= _permitted(caller.user.user, right, its_dags, team)
        return {table.identifier for table in tables if table.workflow_id in permitted}


def _permitted(user: BaseUser, right: Right, dag_ids: set[str], team: str | None) -> set[str]:
    manager = get_auth_manager()
    method, entity = _ASKED[right]
    if entity is None:
        return manager.filter_authorized_dag_ids(dag_ids=dag_ids, user=user, method=method, team_name=team)
    return {
        dag_id
        for dag_id in dag_ids
        if manager.is_authorized_dag(
            method=method, access_entity=entity, details=DagDetails(id=dag_id, team_name=team), user=user
        )
    }
