"""Calls to a Hive metastore on behalf of one catalog: which names are legal, and how its errors become this package's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hive_metastore.ttypes import (
    AlreadyExistsException,
    EnvironmentContext,
    InvalidInputException,
    InvalidObjectException,
    InvalidOperationException,
    MetaException,
    NoSuchObjectException,
    UnknownDBException,
    UnknownTableException,
)

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.exceptions import AlreadyExistsError, CatalogError, NotEmptyError, NotFoundError, UnsupportedError

MAX_DATABASE_NAME = 128
"""Characters that the metastore's own database has for the name of a database."""

MAX_NAME = 256
"""Characters that it has for the name of a table or function."""

KEEP_STATISTICS = EnvironmentContext({"DO_NOT_UPDATE_STATS": "true"})
"""Or the metastore would list every folder that an alteration names."""

_LEGAL = re.compile(r"[a-z0-9_]+", re.ASCII)

_ERRORS_BY_WORDS = {"is not empty": NotEmptyError, "already exists": AlreadyExistsError}
"""What the metastore says of some errors that it has no type for, in every version from 2.3 on; the text is all there is."""


def is_legal(*names: str) -> bool:
    """Whether the metastore would keep these names as they are: it folds them to lower case and takes few characters."""
    return all(map(_LEGAL.fullmatch, names))


@dataclass(frozen=True, slots=True)
class Session:
    """A metastore, and the name of the catalog that its errors are told of."""

    catalog: str
    metastore: Metastore

    def call(self, method: str, *arguments: Any) -> Any:
        """One Thrift call, e.g. ``call("get_table", "sales", "revenue")``.

        :raises NotFoundError: when the metastore does not have what is named.
        :raises AlreadyExistsError: when it has it already.
        :raises NotEmptyError: when a database is to be dropped and holds something.
        :raises CatalogError: when it refuses otherwise.
        :raises CatalogUnavailableError: when it cannot be reached.
        """
        with self.errors():
            return self.metastore.call(method, *arguments)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Here, and nowhere else, what the metastore complains of becomes an error of ours."""
        try:
            yield
        except (NoSuchObjectException, UnknownDBException, UnknownTableException) as error:
            raise NotFoundError(f"Catalog {self.catalog}: {error.message}") from error
        except AlreadyExistsException as error:
            raise AlreadyExistsError(f"Catalog {self.catalog}: {error.message}") from error
        except (InvalidOperationException, InvalidObjectException, InvalidInputException, MetaException) as error:
            message = str(error.message)
            kind = next((kind for words, kind in _ERRORS_BY_WORDS.items() if words in message), CatalogError)
            raise kind(f"Catalog {self.catalog}: {message}") from error

    def check_name(self, what: str, name: str, longest: int) -> None:
        """Refuse the name of something new.

        :param longest: characters that it may have.
        :raises UnsupportedError: when the metastore would change the name or cannot hold it.
        """
        if not is_legal(name) or len(name) > longest:
            raise UnsupportedError(
                f"Catalog {self.catalog} is a Hive metastore, where the name of a {what} has at most {longest} lower-case "
                f"letters, digits and underscores; choose another name than {name!r}."
            )
