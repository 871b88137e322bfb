"""What all declarations are made of: a closed pydantic model, and the types of its fields."""

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
    """A scalar as it is written: ``NO`` is Norway, ``yes`` is what the column holds, and Spark knows ``true``."""
    return value.text if isinstance(value, Flag) else value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Metadata of the type of a text that is one of some values: checked, and listed in the JSON Schema.

    :param known: the values, or a function that gives them when they are needed.
    """

    what: str
    known: tuple[str, ...] | Callable[[], tuple[str, ...]]

    @property
    def legal(self) -> tuple[str, ...]:
        """The values."""
        return self.known() if callable(self.known) else self.known

    def check(self, value: str) -> str:
        """The value, when it is legal.

        :raises ValueError: when it is not; says what is.
        """
        if value not in self.legal:
            raise UnknownValueError(f"{value!r} is no {self.what}; use {' | '.join(self.legal)}", value, lambda: self.legal)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.legal)}


class UnknownValueError(ValueError):
    """A value that is none of the known ones. The one that looks most alike is looked for when the message is shown."""

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
    """Keys that somebody who knows other software may expect, and why they are not taken."""

    def over(self, farther: Declaration) -> Self:
        """Both together, as far as these are the same keys: what this one says wins.

        Where nothing is said by an empty mapping, list or declaration, both are merged key by key or added.
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
