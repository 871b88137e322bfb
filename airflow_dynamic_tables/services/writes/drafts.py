"""Drafts: tables created from a query under a temporary name.

The commit renames the draft to its final name in one catalog operation; until then, the table does not exist under that name.
A draft that is given up is first renamed to a discard name, so that a commit in progress can no longer find it. Only tables
with a discard name are deleted, so a table that received its final name is never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from airflow_dynamic_tables.catalog.values import ONE_OFF, AnyTable, CatalogTable
from airflow_dynamic_tables.clients.files import delete_folder
from airflow_dynamic_tables.core.identifiers import TableIdentifier, discarded_name, draft_name
from airflow_dynamic_tables.core.refresh.steps import Step, trace
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.exceptions import (
    CatalogUnavailableError,
    CommitRejectedError,
    CommitUnknownError,
    ConflictError,
    DynamicTableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_dynamic_tables.formats.base import CommitRequest, LakeTable, StagedTable
from airflow_dynamic_tables.ledger.base import StageState
from airflow_dynamic_tables.services.workspace import Workspace

_BEGUN = (StageState.COMMITTING, StageState.FENCING)
"""States of a stage whose commit may have renamed the draft."""

log = logging.getLogger(__name__)


class DraftedTable(StagedTable):
    """The stage of a table that its commit creates.

    :param identifier: the final name of the table.
    """

    def __init__(self, workspace: Workspace, identifier: TableIdentifier, table_format: str, token: str) -> None:
        catalog, database, table = identifier.catalog, identifier.database, identifier.table
        self.draft = TableIdentifier(catalog, database, draft_name(table, token))
        self._discarded = TableIdentifier(catalog, database, discarded_name(table, token))
        self._identifier = identifier
        self._workspace = workspace
        self._catalog = workspace.catalog(catalog)
        self._format = table_format
        self._token = token
        self._is_lost = False

    def table(self) -> LakeTable:
        """Return the draft."""
        return self._workspace.table(self.draft, self._format)

    def entry(self, comment: str | None, partition_keys: tuple[str, ...]) -> CatalogTable:
        """Return the catalog entry of the draft."""
        return CatalogTable(
            comment=comment, partition_keys=partition_keys, format=self._format, properties={ONE_OFF: self._token}
        )

    def register(self, entry: AnyTable) -> None:
        """Register the draft in the catalog.

        :raises DatabaseNotFoundError: if the database does not exist.
        """
        self._catalog.create_table(self.draft.path, entry, ignore_if_exists=True)

    def begin(self) -> str:
        """See :meth:`StagedTable.begin`. The draft must be in its catalog, and its stage in the ledger."""
        location = self.table().stage(self._token).begin()
        self._workspace.ledger.place_stage(self._token, location)
        return location

    def commit(self, request: CommitRequest, before_publish: Callable[[], None]) -> Version:
        """See :meth:`StagedTable.commit`.

        :raises TableAlreadyExistsError: if another writer created a table with the same name first.
        """
        if version := self.outcome():
            return version

        def still_free() -> None:
            self.check_free()
            before_publish()

        version = self.table().stage(self._token).commit(request, still_free)
        trace(Step.NAMING, self._token)
        return self._named(version)

    def check_free(self) -> None:
        """Check that the final name is not taken.

        :raises TableAlreadyExistsError: if it is.
        """
        if self._catalog.table_exists(self._identifier.path):
            raise self._taken()

    def _taken(self) -> TableAlreadyExistsError:
        return TableAlreadyExistsError(f"{self._identifier} was created by another client meanwhile; it stays as it is.")

    def _named(self, version: Version) -> Version:
        try:
            self._catalog.publish_draft(self.draft.path, self._identifier.table)
        except TableAlreadyExistsError as error:
            raise self._taken() from error
        except TableNotFoundError as error:
            if landed := self.outcome():
                return landed
            self._note_lost()
            raise CommitRejectedError(f"{self._identifier} was given up while it was made; nothing was created.") from error
        except DynamicTableError as error:
            return self._looked_up(error)
        return version

    def _looked_up(self, error: DynamicTableError) -> Version:
        """Return the version if the rename succeeded although the catalog's response was lost.

        :raises CommitUnknownError: if the catalog is unavailable or the draft cannot be fenced off.
        """
        try:
            if self.outcome() is None:
                self.fence()
            landed = self.outcome()
        except (CatalogUnavailableError, CommitRejectedError, CommitUnknownError):
            raise CommitUnknownError(f"It is not known yet whether {self._identifier} got its name: {error}") from error
        if landed is None:
            raise CommitRejectedError(f"{self._identifier} could not get its name: {error}") from error
        return landed

    def outcome(self) -> Version | None:
        """See :meth:`StagedTable.outcome`: return the version if this token created the table, and remove a leftover draft."""
        version = self._workspace.table(self._identifier, self._format).stage(self._token).outcome()
        if version is not None:
            with suppress(TableAlreadyExistsError, TableNotFoundError):  # usually there is no draft left
                self._catalog.publish_draft(self.draft.path, self._identifier.table)
        return version

    def fence(self) -> None:
        """See :meth:`StagedTable.fence`: rename the draft to its discard name, which no commit looks for."""
        try:
            self._catalog.discard_draft(self.draft.path, self._discarded.table)
        except TableNotFoundError:
            self._note_lost()  # already renamed, or given up before
        except TableAlreadyExistsError as error:
            raise CommitRejectedError(f"{self.draft} cannot be given up: {error}") from error
        except DynamicTableError as error:
            raise CommitUnknownError(f"It is not known whether {self.draft} was given up: {error}") from error

    def _note_lost(self) -> None:
        """Record that a draft whose commit began cannot be found.

        The table may have been renamed since, so its files are kept.
        """
        stage = self._workspace.ledger.get_stage(self._token)
        if stage is None or stage.state not in _BEGUN or self._catalog.table_exists(self._discarded.path):
            return
        if self.outcome() is None:
            self._is_lost = True
            self._workspace.ledger.place_stage(self._token, "")
            log.warning("Neither %s nor %s is there, so whatever files the former had stay.", self.draft, self._identifier)

    def abort(self, location: str | None = None) -> None:
        """See :meth:`StagedTable.abort`. Files are deleted first, so that the catalog entry remains if the process is killed."""
        with suppress(TableNotFoundError):
            self._catalog.discard_draft(self.draft.path, self._discarded.table)
        if location and not self._is_lost:
            self._delete(location)
        with suppress(TableNotFoundError):
            self._catalog.drop_table(self._discarded.path)

    def _delete(self, location: str) -> None:
        """Delete the folder of the draft.

        :param location: the folder of the stage inside the draft's folder.
        :raises ConflictError: if the table reads the folder.
        """
        before, made, after = location.partition(f"/{self.draft.table}")
        if not made:
            if "/" in location:  # a server chose the folder, and only the server knows its contents
                self._workspace.table(self._discarded, self._format).stage(self._token).abort(location)
            return  # or the draft has no folder yet
        folder = f"{before}{made}{after.partition('/')[0]}"
        own = self._workspace.table(self._identifier, self._format).folder()
        if own is not None and own.rstrip("/") == folder:
            raise ConflictError(f"{self._identifier} reads {folder}, so it stays.")
        delete_folder(before, folder)
