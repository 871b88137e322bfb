"""Interfaces between the loop and its strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID, uuid5

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.services.refresh.requests import Parent
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The outcome of a turn: the committed versions, oldest first, or why there are none.

    ``more`` means that the next turn must follow immediately.
    """

    versions: tuple[Version, ...] = ()
    reason: str = ""
    more: bool = False


class Strategy(Protocol):
    """A strategy refreshes one table, turn by turn. Waiting, counting failures and ending are the responsibility of the loop."""

    def turn(self, number: int) -> TurnOutcome:
        """Refresh the table up to now, or as far as one turn allows.

        :param number: the first turn of a task is 1.
        :raises DynamicTableError: if the turn failed; the next turn starts over.
        """

    def close(self) -> None:
        """Release resources kept between turns. Called once, also after a failure."""


@dataclass(frozen=True, slots=True)
class Work:
    """The context of a strategy: one table in one task.

    ``identity`` is unique to each attempt of the task, and ``owner`` is the same for all. ``submit`` runs the job of a plan to
    its end and raises if it failed; ``stop_job`` stops it from another thread.
    """

    workspace: Workspace
    table: DynamicTable
    sources: Mapping[TableIdentifier, Source]
    parents: tuple[Parent, ...]
    identity: UUID
    owner: str
    submit: Callable[[RefreshPlan], object]
    stop_job: Callable[[], None]

    def token(self, number: int) -> str:
        """Return the token of a turn: deterministic, and unique among the turns of all tasks."""
        return str(uuid5(self.identity, str(number)))
