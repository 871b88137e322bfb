"""PyIceberg's REST catalog client with timeouts, and with a lookup of commits whose response was lost."""

from __future__ import annotations

import time
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session, codes
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

_CONNECT_SECONDS = 10
"""Connect timeout in seconds."""

_READ_SECONDS = 60
"""Read timeout in seconds; PyIceberg's own client waits forever."""

_LONGEST_PAUSE = 30
"""Longest ``Retry-After`` honored, in seconds; a longer one is reported as an error."""

_ATTEMPTS = 4


class PatientServer(RestCatalog):
    """A REST catalog client with timeouts."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See :meth:`RestCatalog.commit_table`.

        A proxy may send a commit twice: the first request succeeds, the second returns a conflict. PyIceberg would then delete
        the manifests of the commit that it considers failed.
        """
        try:
            committed: CommitTableResponse = super().commit_table(table, requirements, updates)
            return committed
        except CommitFailedException:
            added = {update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)}
            if not added:
                raise
            now = self._looked_up(table)
            if not added <= {snapshot.snapshot_id for snapshot in now.metadata.snapshots}:
                raise
            return CommitTableResponse.model_validate({"metadata": now.metadata, "metadata-location": now.metadata_location})

    def _looked_up(self, table: Table) -> Table:
        try:
            now: Table = self.load_table(table.name())
            return now
        except Exception as error:
            raise CommitStateUnknownException(f"The server tells of a conflict and then nothing more: {error}") from error

    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first on a new session, before it requests a token.
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Impatient())


class _Impatient(HTTPAdapter):
    """An adapter with default timeouts that resends requests which a busy server rejected unprocessed."""

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """See :meth:`HTTPAdapter.send`."""
        if options.get("timeout") is None:
            options["timeout"] = (_CONNECT_SECONDS, _READ_SECONDS)
        for attempt in range(1, _ATTEMPTS):
            response = super().send(request, *args, **options)
            pause = _pause(response, attempt)
            if pause is None:
                return response
            response.close()
            time.sleep(pause)
        return super().send(request, *args, **options)


def _pause(response: Response, attempt: int) -> float | None:
    """Seconds to wait before resending a request; ``None`` when it was answered or may have been processed."""
    asked = response.headers.get("Retry-After")
    only_reads = response.request.method in ("GET", "HEAD")
    is_busy = response.status_code == codes.too_many_requests
    if not is_busy and not (only_reads and asked is not None and response.status_code == codes.service_unavailable):
        return None
    try:
        seconds = Retry().parse_retry_after(asked) if asked is not None else float(2 ** (attempt - 1))
    except InvalidHeader:
        return None
    return seconds if seconds <= _LONGEST_PAUSE else None
