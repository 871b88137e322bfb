"""Damaged files of Iceberg tables: PyIceberg and its readers raise whatever they stumble over, which names no table."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

from pyiceberg.exceptions import ValidationError

from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, DynamicTableError

_Table = TypeVar("_Table")

_DAMAGE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError),
    *(EOFError, RecursionError, SystemError, NotImplementedError, struct.error, zlib.error, ValidationError),
)
"""Errors of reading a file that is truncated or spoiled, or of a kind that PyIceberg does not know."""


@contextmanager
def damage_named(path: object, catalog: str) -> Iterator[None]:
    """Around everything that PyIceberg reads of a table, and nothing else.

    :raises CatalogUnavailableError: names the table when a file of its metadata is damaged.
    """
    try:
        yield
    except DynamicTableError:
        raise
    except _DAMAGE as error:
        why = shown(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}")
        raise CatalogUnavailableError(
            f"A metadata file of Iceberg table {path} in catalog {catalog} is damaged ({why}); restore the file, or drop the "
            "table and refresh it again."
        ) from error


def names_damage(table: type[_Table]) -> type[_Table]:
    """Run each public method of a class within :func:`damage_named`; its objects have a ``_path`` and a ``_store``."""

    def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            with damage_named(self._path, self._store.catalog):
                return method(self, *args, **kwargs)

        return run

    for name, method in [*vars(table).items()]:
        if isfunction(method) and not name.startswith("_"):
            setattr(table, name, guarded(method))
    return table
