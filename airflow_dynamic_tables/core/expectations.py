"""What a table's rows are expected to be, and what was found.

The job imports this module, so it keeps to the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """What was found: ``violations`` is the number of rows that are not as expected, ``detail`` says more when a number does not.

    With the action ``drop`` the violating rows were left out; otherwise they are in the stage.
    """

    name: str
    action: str
    violations: int
    detail: str | None = None
