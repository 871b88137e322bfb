"""Exceptions of this package, grouped by how to handle them.

::

    DynamicTableError
    ├─ DefinitionError               fix the YAML (path, line, column, all mistakes)
    ├─ ConfigurationError            fix the configuration: connection, catalogs file, missing program
    │  └─ MissingExtraError          pip install "airflow-dynamic-tables[...]"
    ├─ CatalogError                  the catalog rejected the request, or cannot be reached
    │  ├─ NotFoundError              Catalog-, Database-, Table-, Partition-, Function-, VersionNotFoundError
    │  ├─ AlreadyExistsError         Database-, Table-, Partition-, FunctionAlreadyExistsError
    │  ├─ NotEmptyError              drop its content first
    │  ├─ InvalidPartitionError      the table is not partitioned, or the spec does not match its keys
    │  ├─ UnsupportedError           not supported by this catalog or format
    │  └─ CatalogUnavailableError    retry when the server is available
    ├─ StageRejectedError            the job's output must not be committed; the stage is aborted
    │  ├─ SchemaEvolutionError       the query is incompatible with the table
    │  └─ ExpectationError           rows violate expectations of the definition
    ├─ QuarantinedError              a user has to decide: publish or abort
    ├─ ConflictError                 concurrent change: re-read, retry
    │  └─ CommitRejectedError        the commit certainly failed: may clean up
    │     ├─ OvertakenError          newer data was committed: nothing left to do
    │     └─ EmptyBatchError         a batch of a stream has no rows: nothing to do
    ├─ CommitUnknownError            check the outcome first: never clean up
    ├─ JobFailedError                the Spark job failed (application id, log tail)
    ├─ SchedulerError                the workflow scheduler rejected the request
    │  ├─ WorkflowNotFoundError      the scheduler has no such workflow
    │  ├─ UnsupportedScheduleError   the scheduler has no such schedule
    │  └─ SchedulerUnavailableError  retry when the scheduler is available
    ├─ UpstreamError                 a parent is late or failed
    │  ├─ UpstreamSuspendedError     a parent is suspended: resume it
    │  └─ StaleSourceError           a source did not change for too long: see what writes it
    ├─ InvalidFieldError             a request has an invalid field: correct it
    ├─ TooBusyError                  too many concurrent requests: retry later
    └─ AccessError                   the caller lacks access
       ├─ UnauthenticatedError       log in, and retry
       └─ ForbiddenError             request the permission

The docstring of a class is its default message; data is in attributes; library errors are wrapped once, at the edge, with
``from``. No message contains a secret, because it is written to the history, to logs and to screens.
"""

from airflow_dynamic_tables.redaction import without_secrets


class DynamicTableError(Exception):
    """A dynamic table could not be handled."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(without_secrets(message) if message else type(self).__doc__)


class DefinitionError(DynamicTableError):
    """The definitions contain mistakes."""

    def __init__(self, mistakes: tuple[object, ...]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(str(mistake) for mistake in mistakes))


class ConfigurationError(DynamicTableError):
    """The set-up is wrong."""


class MissingExtraError(ConfigurationError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str) -> None:
        self.extra = extra
        super().__init__(f'Not installed; run: pip install "airflow-dynamic-tables[{extra}]"')


class CatalogError(DynamicTableError):
    """The catalog refused."""


class NotFoundError(CatalogError):
    """It does not exist."""


class CatalogNotFoundError(NotFoundError):
    """The catalog does not exist."""


class DatabaseNotFoundError(NotFoundError):
    """The database does not exist."""


class TableNotFoundError(NotFoundError):
    """The table or view does not exist."""


class PartitionNotFoundError(NotFoundError):
    """The partition does not exist."""


class FunctionNotFoundError(NotFoundError):
    """The function does not exist."""


class VersionNotFoundError(NotFoundError):
    """The version does not exist, or is no longer kept."""


class AlreadyExistsError(CatalogError):
    """It exists already."""


class DatabaseAlreadyExistsError(AlreadyExistsError):
    """The database exists already."""


class TableAlreadyExistsError(AlreadyExistsError):
    """The table or view exists already."""


class PartitionAlreadyExistsError(AlreadyExistsError):
    """The partition exists already."""


class FunctionAlreadyExistsError(AlreadyExistsError):
    """The function exists already."""


class NotEmptyError(CatalogError):
    """The database is not empty."""


class InvalidPartitionError(CatalogError):
    """The partition spec does not fit the table."""


class UnsupportedError(CatalogError):
    """This catalog or format cannot do that."""


class CatalogUnavailableError(CatalogError):
    """The catalog cannot be reached."""


class StageRejectedError(DynamicTableError):
    """The stage must not be committed."""


class SchemaEvolutionError(StageRejectedError):
    """Columns can only be appended, and only nullable ones."""


class ExpectationError(StageRejectedError):
    """The rows are not as the definition expects them."""


class DriftError(DynamicTableError):
    """Rows of the table are not as its query returns them."""


class QuarantinedError(DynamicTableError):
    """The stage waits for a decision whether it is published or aborted."""


class ConflictError(DynamicTableError):
    """It was changed concurrently; read it again and retry."""


class CommitRejectedError(ConflictError):
    """The commit surely did not land."""


class OvertakenError(CommitRejectedError):
    """Newer data was committed meanwhile."""


class EmptyBatchError(CommitRejectedError):
    """A batch of a stream has no rows, so it makes no version."""


class CommitUnknownError(DynamicTableError):
    """It is not known yet whether the commit landed; nothing was cleaned up."""


class JobFailedError(DynamicTableError):
    """The Spark job failed."""

    def __init__(self, message: str | None = None, *, application_id: str | None = None, log_tail: str = "") -> None:
        self.application_id = application_id
        self.log_tail = without_secrets(log_tail)
        super().__init__(message)


class JobMisfitError(JobFailedError):
    """The columns of the query do not fit the table; the job wrote nothing."""


class SchedulerError(DynamicTableError):
    """The scheduler of workflows refused."""


class WorkflowNotFoundError(SchedulerError):
    """The scheduler has no such workflow."""


class UnsupportedScheduleError(SchedulerError):
    """The scheduler has no such schedule."""


class SchedulerUnavailableError(SchedulerError):
    """The scheduler cannot be reached."""


class UpstreamError(DynamicTableError):
    """A table that this one reads is late or failed."""


class UpstreamSuspendedError(UpstreamError):
    """A table that this one reads is suspended."""


class StaleSourceError(UpstreamError):
    """A source that a table reads did not change for longer than its maximum age."""


class InvalidFieldError(DynamicTableError):
    """A field of a request says something that cannot be."""

    def __init__(self, field: str, detail: str) -> None:
        self.field = field
        super().__init__(detail)


class TooBusyError(DynamicTableError):
    """Too much is going on already; ask again later."""


class AccessError(DynamicTableError):
    """The caller is not authorized."""


class UnauthenticatedError(AccessError):
    """The caller is not authenticated."""


class ForbiddenError(AccessError):
    """The caller lacks the right."""
