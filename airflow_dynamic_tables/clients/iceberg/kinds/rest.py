"""PyIceberg's client of REST catalogs, with an end to its patience, and with commits whose answer went astray looked up."""

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
"""Seconds after which a server that does not answer is down."""

_READ_SECONDS = 60
"""Seconds that a server may stay silent after it was asked; PyIceberg's own would wait for ever."""

_LONGEST_PAUSE = 30
"""Seconds that a server may ask to be left alone; whoever asks for more is told of as an error."""

_ATTEMPTS = 4


class PatientServer(RestCatalog):
    """A REST catalog that is given up when it falls silent."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """See :meth:`RestCatalog.commit_table`.

        A proxy may send a commit twice: the first lands, the answer to the second is a conflict. PyIceberg would delete the
        manifests of what it takes to have failed.
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
        # The first that PyIceberg does with a session, before it asks for a token.
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Impatient())


class _Impatient(HTTPAdapter):
    """Requests that say nothing of a time limit have one; those that a busy server did not look at are sent again."""

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
    """Seconds after which a request is sent again; ``None`` when it is answered, or may have been carried out."""
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
