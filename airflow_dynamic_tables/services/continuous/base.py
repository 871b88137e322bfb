"""What the loop and its strategies agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID, uuid5

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.services.refresh.requests import Parent
from airflow_dynamic_tables.services.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What became of a turn: the versions that it committed, the oldest first, or why there is none.

    With ``more``, something is left that the next turn shall do at once.
    """

    versions: tuple[Version, ...] = ()
    reason: str = ""
    more: bool = False


class Strategy(Protocol):
    """How one table is brought up to date, turn after turn. The loop waits, counts failures and ends; a strategy does not."""

    def turn(self, number: int) -> TurnOutcome:
        """Bring the table up to now, or as near as one turn shall.

        :param number: the first turn of a task is 1.
        :raises DynamicTableError: the turn failed; the next one begins anew.
        """

    def close(self) -> None:
        """Let go of what is kept between turns; called once, also after a failure."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a strategy works with: one table, in one task.

    ``identity`` is another one for each try of the task, and ``owner`` the same for all. ``submit`` runs the job of a plan to its
    end and raises when it failed; ``stop_job`` stops it from another thread.
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
        """The token of a turn: the same whenever it is asked for, and no other turn of any task has it."""
        return str(uuid5(self.identity, str(number)))
