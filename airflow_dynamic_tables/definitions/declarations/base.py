"""Base classes and field types of declarations: a pydantic model that is closed to unknown keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from airflow_dynamic_tables.core.identifiers import check_name
from airflow_dynamic_tables.core.mistakes import did_you_mean
from airflow_dynamic_tables.yaml_files.documents import Flag


def _text(value: object) -> object:
    """Return a scalar as written: ``NO`` is Norway, ``yes`` is a value of a column, and Spark parses ``true``."""
    return value.text if isinstance(value, Flag) else value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Type metadata of a string with a fixed set of values: validated, and listed in the JSON Schema.

    :param known: the values, or a function that returns them when they are needed.
    """

    what: str
    known: tuple[str, ...] | Callable[[], tuple[str, ...]]

    @property
    def legal(self) -> tuple[str, ...]:
        """Return the legal values."""
        return self.known() if callable(self.known) else self.known

    def check(self, value: str) -> str:
        """Return the value if it is legal.

        :raises ValueError: when it is not; the message lists the legal values.
        """
        if value not in self.legal:
            raise UnknownValueError(f"{value!r} is no {self.what}; use {' | '.join(self.legal)}", value, lambda: self.legal)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.legal)}


class UnknownValueError(ValueError):
    """A value that is not one of the known ones. The most similar value is computed only when the message is shown."""

    def __init__(self, message: str, value: str, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(message)
        self._value = value
        self._known = known

    def __str__(self) -> str:
        return f"{self.args[0]}{did_you_mean(self._value, self._known())}"


Name = Annotated[str, Field(min_length=1)]


PlainName = Annotated[Name, AfterValidator(check_name)]
"""The name of one catalog or database."""


Scalar = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]}, mode="validation")]


Options = dict[Name, Scalar]


class Declaration(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    refused: ClassVar[Mapping[str, str]] = {}
    """Keys that users of other software may expect, and why they are not accepted."""

    def over(self, farther: Declaration) -> Self:
        """Merge with a declaration of an outer level, for the keys that both have; set keys of this one take precedence.

        Mappings and declarations are merged key by key, and lists are concatenated, if their default is empty.
        """
        shared = farther.model_fields_set & type(self).model_fields.keys()
        return self.model_copy(update={name: self._merged(name, getattr(farther, name)) for name in shared})

    def _merged(self, name: str, farther: Any) -> Any:
        own = getattr(self, name)
        if isinstance(own, Declaration) and isinstance(farther, Declaration):
            return own.over(farther)
        if name not in self.model_fields_set:
            return farther
        if type(self).model_fields[name].default is None:
            return own
        return {**farther, **own} if isinstance(own, dict) else (*farther, *own)
