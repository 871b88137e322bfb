"""The age of sources: how long ago their rows changed last, compared with the ``max_age`` of their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import Freshness, is_ahead
from airflow_dynamic_tables.exceptions import StaleSourceError


def check_ages(
    sources: Mapping[TableIdentifier, Source], bindings: Iterable[SourceBinding], now: datetime, *, may_fail: bool
) -> str:
    """Return which sources are older than their definitions allow, without a full stop; empty if none is.

    :param may_fail: false for a refresh that a user asked for.
    :raises StaleSourceError: if the refresh must not begin with one of them.
    """
    limited = {str(name): source for name, source in sources.items() if source.max_age is not None}
    found: list[str] = []
    is_refused = False
    for binding in bindings:
        source = limited.get(binding.identifier)
        if source is None or source.max_age is None:
            continue
        changed_at = binding.state.changed_at if binding.state is not None else None
        fails = _is_older(changed_at, source.max_age.fail, now)
        if fails or _is_older(changed_at, source.max_age.warn, now):
            most = source.max_age.fail if fails else source.max_age.warn
            found.append(f"{source.identifier} {_changed(changed_at, now)}; its max_age is {_text(most)}")
            is_refused = is_refused or fails
    if is_refused and may_fail:
        raise StaleSourceError(f"UPSTREAM_LATE: {', and '.join(found)}. Refresh the table by hand to read it as it is.")
    return "; ".join(found)


def _is_older(changed_at: datetime | None, most: timedelta | None, now: datetime) -> bool:
    if most is None:
        return False
    return changed_at is None or is_ahead(changed_at, now) or now - changed_at > most


def _changed(changed_at: datetime | None, now: datetime) -> str:
    if changed_at is None:
        return "has no change whose time is known"
    if is_ahead(changed_at, now):
        return f"changed in the future, at {changed_at.isoformat(timespec='seconds')}, by a clock that is wrong"
    return f"changed last at {changed_at.isoformat(timespec='seconds')}"


def _text(most: timedelta | None) -> str:
    return Freshness(int(most.total_seconds())).text if most is not None else ""
