"""Iceberg catalogs of the supported kinds: connections and conversion of their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TooManyRequestsError,
    UnauthorizedError,
)

from airflow_dynamic_tables.clients.files import as_os_errors
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.lineage import DatasetName, metastore_symlink
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    MissingExtraError,
    UnsupportedError,
)
from airflow_dynamic_tables.redaction import HIDDEN, has_password, is_secret_name


@dataclass(frozen=True, slots=True)
class ServerKind:
    """One kind of Iceberg catalog.

    ``place`` is ``module:function or class`` that creates a client from a name and properties; it is imported on use. ``schemes``
    are the valid schemes of its ``uri``, empty when it has none, and ``example`` is an example of one. ``extra`` is the extra of
    this package that it requires. A kind that ``folds_names`` accepts lower-case letters, digits and underscores. ``comment`` is
    the namespace property that holds its comment, which cannot be changed where the catalog ``keeps_comments``. A kind that
    ``checks_new_names`` of tables does so more reliably than a check by the caller: during a rename, a table may have both names.
    """

    place: str
    schemes: tuple[str, ...] = ()
    extra: str | None = None
    folds_names: bool = False
    comment: str = "comment"
    keeps_comments: bool = False
    checks_new_names: bool = False
    example: str = ""

    def load(self) -> Callable[..., Catalog]:
        """Import the client.

        :raises MissingExtraError: when its dependencies are not installed.
        """
        module, _, name = self.place.partition(":")
        try:
            made: Callable[..., Catalog] = getattr(import_module(module), name)
        except (ModuleNotFoundError, NotInstalledError) as error:
            if self.extra is None:
                raise
            raise MissingExtraError(self.extra) from error
        return made


_HERE = "airflow_dynamic_tables.clients.iceberg"

KINDS: Mapping[str, ServerKind] = {
    "rest": ServerKind(f"{_HERE}.rest:PatientServer", ("http", "https"), example="https://catalog.example.com"),
    "hive": ServerKind(
        f"{_HERE}.hive:PatientMetastore",
        ("thrift",),
        extra="hive",
        folds_names=True,
        keeps_comments=True,
        example="thrift://metastore:9083",
    ),
    "glue": ServerKind(
        f"{_HERE}.glue:RenamingGlue", extra="glue", folds_names=True, comment="Description", checks_new_names=True
    ),
    "sql": ServerKind(
        f"{_HERE}.catalog:on_database", ("sqlite", "postgresql"), example="postgresql://catalog@db.example.com/iceberg"
    ),
}
"""The kinds by PyIceberg's names."""

_CLIENTS = ("botocore", "hive_metastore", "pydantic_core", "requests", "sqlalchemy", "thrift", "urllib3")
"""Packages of the clients of these catalogs, whose errors have no common base class."""

_LONGEST = 300
"""Maximum number of characters quoted from a server's response, which may be an HTML page."""


@dataclass(frozen=True, slots=True)
class IcebergServer:
    """An Iceberg catalog; ``name`` identifies it in errors."""

    name: str
    kind: str
    properties: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.kind!r})"  # properties hold secrets

    @property
    def traits(self) -> ServerKind:
        """The characteristics of its kind."""
        return KINDS[self.kind]

    def symlink(self, path: ObjectPath) -> DatasetName | None:
        """Return the name of a table in OpenLineage besides that of its location, as Spark's listener gives it.

        That of Glue contains the number of an account, which only its own properties tell; a database has none.
        """
        uri = str(self.properties.get("uri", ""))
        if self.kind == "hive":
            return metastore_symlink(uri, path.database, path.name)
        if self.kind == "rest" and not has_password(uri):
            return DatasetName(uri, f"{path.database}.{path.name}")
        region, account = self.properties.get("glue.region"), self.properties.get("glue.id")
        if self.kind == "glue" and region and account:
            return DatasetName(f"arn:aws:glue:{region}:{account}", f"table/{path.database}/{path.name}")
        return None

    def connect(self) -> Catalog:
        """Create a client; a REST catalog is asked for its configuration.

        :raises CatalogUnavailableError: when the catalog cannot be reached, or rejects the credential.
        :raises ConfigurationError: when the server is not a REST catalog.
        :raises MissingExtraError: when a dependency is not installed.
        """
        make = self.traits.load()
        try:
            with self.errors():
                return make(self.name, **self.properties)
        except (CatalogUnavailableError, ConfigurationError) as error:
            answered = error.__cause__
            is_refused = isinstance(answered, UnauthorizedError | OAuthError | AuthorizationExpiredError | ForbiddenError)
            is_odd = isinstance(answered, ValidationError) or type(answered).__name__ in ("RESTError", "BadRequestError")
            if self.kind == "rest" and is_odd and not is_refused:
                raise ConfigurationError(
                    f"Catalog {self.name}: {self.properties['uri']} does not answer as an Iceberg REST catalog does; check "
                    f"'uri', which ends where /v1/config begins, and 'warehouse': {self._reason(answered)}"
                ) from error
            raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert the errors of catalog calls; PyIceberg's errors about tables and namespaces are left to the caller.

        :raises AlreadyExistsError: when the same object was created concurrently.
        :raises CatalogUnavailableError: when there is no connection, no permission or no valid response.
        :raises UnsupportedError: when the catalog does not support the operation.
        """
        try:
            with as_os_errors():
                yield
        except (UnauthorizedError, OAuthError, AuthorizationExpiredError) as error:
            raise CatalogUnavailableError(
                f"Catalog {self.name}: the server does not accept the credential or token, or it has expired; renew it in "
                f"catalogs.yaml or in the connection: {self._reason(error)}"
            ) from error
        except ForbiddenError as error:
            raise CatalogUnavailableError(
                f"Catalog {self.name}: the server does not grant that to this credential: {self._reason(error)}"
            ) from error
        except CommitStateUnknownException as error:
            raise CatalogUnavailableError(
                f"Catalog {self.name}: it is unknown whether the server made that change; check it, and try again: "
                f"{self._reason(error)}"
            ) from error
        except NotImplementedError as error:
            raise UnsupportedError(f"Catalog {self.name} does not offer that: {self._reason(error)}") from error
        except (BadRequestError, TooManyRequestsError) as error:
            raise CatalogUnavailableError(f"Catalog {self.name}: the server refuses that: {self._reason(error)}") from error
        except (RESTError, OSError) as error:
            raise CatalogUnavailableError(f"Cannot reach catalog {self.name}: {self._reason(error)}") from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _CLIENTS:
                raise
            if type(error).__name__ == "IntegrityError":
                raise AlreadyExistsError(f"Another client just created it in catalog {self.name}.") from error
            raise CatalogUnavailableError(f"Cannot reach catalog {self.name}: {self._reason(error)}") from error

    def _reason(self, error: BaseException | None) -> str:
        """An error's message in one line, without the secrets of this catalog."""
        text = " ".join(str(getattr(error, "message", None) or error).split()) or type(error).__name__
        for name, value in self.properties.items():
            if value and is_secret_name(name):
                # The two parts of a credential are sent separately, and a server may quote the secret part alone, or the token
                # after 'Bearer'.
                for secret in (value, value.partition(":")[2], *value.split()[-1:]):
                    text = text.replace(secret, HIDDEN) if secret.strip() else text
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
