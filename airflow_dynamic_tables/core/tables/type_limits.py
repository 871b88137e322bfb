"""Types and names of nested fields that tables of a format cannot have, though Spark can compute them.

The job imports this module, so it keeps to the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import parse_type
from airflow_dynamic_tables.core.tables.types import Array, DataType, Field, Map, Primitive, Struct
from airflow_dynamic_tables.exceptions import SchemaEvolutionError


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """What columns of a table cannot have.

    ``types`` are names of types, each with the reason and the remedy. Names of nested fields have none of ``signs``; where there
    are any, a name is not empty either.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    signs: str = ""

    def check(self, columns: Sequence[Column]) -> None:
        """Check columns.

        :raises SchemaEvolutionError: names the first column that a table cannot have, the reason and the remedy.
        """
        for column in columns:
            for part in _parts(parse_type(column.type)) if self.types or self.signs else ():
                if isinstance(part, Primitive) and part.name in self.types:
                    raise SchemaEvolutionError(f"Column {column.name!r} has type {column.type}; {self.types[part.name]}.")
                if isinstance(part, Field) and self._is_refused(part.name):
                    signs = " ".join(self.signs)
                    raise SchemaEvolutionError(
                        f"Column {column.name!r} has a nested field {part.name!r}; names of fields are not empty here and "
                        f"have none of the signs {signs}: give the field another name in the query."
                    )

    def _is_refused(self, name: str) -> bool:
        return bool(self.signs) and (not name or any(sign in name for sign in self.signs))


NO_LIMITS = TypeLimits()


def _parts(kind: DataType) -> Iterator[Primitive | Field]:
    """The types without parts in a type, and its nested fields."""
    match kind:
        case Primitive():
            yield kind
        case Array(element):
            yield from _parts(element)
        case Map(key, value):
            yield from _parts(key)
            yield from _parts(value)
        case Struct(fields):
            for one in fields:
                yield one
                yield from _parts(one.type)
