"""Abilities beyond SQL that a deployment grants to queries; all are granted by default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

JAVA_CALLS = frozenset({"reflect", "java_method", "try_reflect"})
"""Spark functions that call arbitrary static Java methods."""


class Ability(StrEnum):
    """Abilities of a query beyond SQL."""

    TRANSFORM = "transform"
    JAVA_CALLS = "java_calls"
    PYTHON_FUNCTIONS = "python_functions"


_WORDS = {
    Ability.TRANSFORM: "starting programs (TRANSFORM, MAP or REDUCE ... USING)",
    Ability.JAVA_CALLS: "calling Java (reflect, java_method, try_reflect, Java functions of catalogs)",
    Ability.PYTHON_FUNCTIONS: "calling Python functions of catalogs",
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The abilities granted to queries."""

    transform: bool = True
    java_calls: bool = True
    python_functions: bool = True

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """Parse ``{transform: false, java_calls: false}``; omitted abilities are granted.

        :raises ValueError: when the text has another form.
        """
        answers: dict[str, bool] = {}
        names = [field.name for field in fields(cls)]
        for item in filter(None, (part.strip() for part in text.strip().removeprefix("{").removesuffix("}").split(","))):
            name, _, answer = (part.strip().strip("\"'") for part in item.partition(":"))
            if name not in names or answer not in ("true", "false") or name in answers:
                raise ValueError(
                    f"{item!r} says nothing; write for example {{{', '.join(f'{known}: false' for known in names)}}}"
                )
            answers[name] = answer == "true"
        return cls(**answers)

    def refusal(self, ability: Ability) -> str | None:
        """Return why an ability is denied; ``None`` when it is granted."""
        if getattr(self, ability.value):
            return None
        return f"{_WORDS[ability]} is not allowed here ({ability.value}: false in DYNAMIC_TABLES_ALLOW)"


EVERYTHING = Allowed()


def ability_of(language: str) -> Ability:
    """The ability required by a catalog function of a language."""
    return Ability.PYTHON_FUNCTIONS if language == "python" else Ability.JAVA_CALLS
