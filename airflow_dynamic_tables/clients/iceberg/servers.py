"""Iceberg catalogs of any kind that PyIceberg knows and this package was tried with: opened, and what their errors mean."""

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

from airflow_dynamic_tables.clients.object_stores import as_os_errors
from airflow_dynamic_tables.exceptions import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    MissingExtraError,
    UnsupportedError,
)
from airflow_dynamic_tables.redaction import HIDDEN, is_secret_name


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of Iceberg catalog.

    ``place`` is ``module:function or class`` that makes a client of a name and properties; it is imported on use. ``schemes`` are
    what its ``uri`` begins with, none when it has none, and ``example`` is one. ``extra`` is the extra of this package that it
    needs. One that ``folds_names`` takes lower-case letters, digits and underscores. ``comment`` is the property of a namespace
    that is its comment, which never changes where the catalog ``keeps_comments``. One that ``checks_new_names`` of
    tables itself does so better than whoever asks before: the table may have the new name already, and its former one as well.
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
        """Import it.

        :raises MissingExtraError: when what it needs is not installed.
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

KINDS: Mapping[str, Kind] = {
    "rest": Kind(f"{_HERE}.kinds.rest:PatientServer", ("http", "https"), example="https://catalog.example.com"),
    "hive": Kind(
        f"{_HERE}.kinds.hive:PatientMetastore",
        ("thrift",),
        extra="hive",
        folds_names=True,
        keeps_comments=True,
        example="thrift://metastore:9083",
    ),
    "glue": Kind(
        f"{_HERE}.kinds.glue:RenamingGlue", extra="glue", folds_names=True, comment="Description", checks_new_names=True
    ),
    "sql": Kind(f"{_HERE}.catalog:on_database", ("sqlite", "postgresql"), example="postgresql://catalog@db.example.com/iceberg"),
}
"""The kinds by PyIceberg's names of them."""

_CLIENTS = ("botocore", "hive_metastore", "pydantic_core", "requests", "sqlalchemy", "thrift", "urllib3")
"""Packages of the clients of these catalogs, whose errors are of many kinds."""

_LONGEST = 300
"""Characters of what a server said that a message quotes: it may be a page of HTML."""


@dataclass(frozen=True, slots=True)
class Server:
    """An Iceberg catalog, by the name that its errors are told of."""

    name: str
    kind: str
    properties: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.kind!r})"  # properties hold secrets

    @property
    def traits(self) -> Kind:
        """What is peculiar to its kind."""
        return KINDS[self.kind]

    def connect(self) -> Catalog:
        """Make a client; a REST catalog is asked for its configuration.

        :raises CatalogUnavailableError: when it cannot be reached, or does not accept the credential.
        :raises ConfigurationError: when it is something else than a REST catalog.
        :raises MissingExtraError: when what it needs is not installed.
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
        """Around everything that asks the catalog; what PyIceberg says of tables and namespaces is left to whoever asked.

        :raises AlreadyExistsError: when somebody else made the same thing at the same moment.
        :raises CatalogUnavailableError: when nobody knows the answer: no connection, no right, no sense in it.
        :raises UnsupportedError: when the catalog does not offer that.
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
                f"Catalog {self.name}: nobody knows whether the server made that change; look, and try again: "
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
                raise AlreadyExistsError(f"Somebody else made it in catalog {self.name} just now.") from error
            raise CatalogUnavailableError(f"Cannot reach catalog {self.name}: {self._reason(error)}") from error

    def _reason(self, error: BaseException | None) -> str:
        """What an error says, in one line, without the secrets of this catalog."""
        text = " ".join(str(getattr(error, "message", None) or error).split()) or type(error).__name__
        for name, value in self.properties.items():
            if value and is_secret_name(name):
                # A server is sent the two parts of a credential one by one, and may say only the secret one again; or what
                # follows the word 'Bearer'.
                for secret in (value, value.partition(":")[2], *value.split()[-1:]):
                    text = text.replace(secret, HIDDEN) if secret.strip() else text
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
