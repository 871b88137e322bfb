"""Policies by which calls are repeated, each named by its reason."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random_exponential

CONFLICTS = 20
"""Attempts to read, change and write an entry before the call fails because of concurrent writers."""


def after_conflicts(conflict: type[Exception]) -> Retrying:
    """Return the policy of a read, a change and a write, which is repeated after each concurrent write."""
    return Retrying(
        retry=retry_if_exception_type(conflict),
        stop=stop_after_attempt(CONFLICTS),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        reraise=True,
    )


def after_refusals(refusal: type[Exception], attempts: int, first_pause: float) -> Retrying:
    """Return the policy of an idempotent call to a server that refuses calls while it is busy.

    :param first_pause: seconds; each further pause takes twice as long.
    """
    return Retrying(
        retry=retry_if_exception_type(refusal),
        stop=stop_after_attempt(attempts),
        wait=wait_exponential(multiplier=first_pause),
        reraise=True,
    )
