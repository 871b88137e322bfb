"""What is new in a source with a watermark since a stream read it: partitions that became whole."""

from __future__ import annotations

from airflow_dynamic_tables.core.refresh.source_states import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.streaming.watermarks import PartitionWatermark
from airflow_dynamic_tables.formats.news import News, why_another
from airflow_dynamic_tables.services.watermarks.growth import Growth, restricted
from airflow_dynamic_tables.services.watermarks.looking import look_at
from airflow_dynamic_tables.services.workspace import Workspace


def news(
    workspace: Workspace, source: Source, watermark: PartitionWatermark, timezone: str, view: str, since: SourceState | None
) -> News:
    """The partitions that are whole now, in order, each with all its files.

    One that was read and has changed ends what was read; until it is whole again, nothing is read. One that is gone changes
    nothing, as absence proves nothing.

    :param timezone: in which partition times are on the wall.
    :param view: what a stream reads the source as.
    :param since: what was read, the state of the binding of earlier news.
    :raises ConfigurationError: see :func:`~airflow_dynamic_tables.services.watermarks.looking.look`.
    """
    read = dict(since.partitions or {}) if since is not None else {}
    growth = look_at(workspace, source, watermark, read, timezone)
    batch = growth.batch
    told = Growth({str(source.identifier): growth}, {}, None)
    if told.obstacle is not None:
        return News(waiting=told.obstacle)
    state = growth.binding.state or SourceState(growth.binding.version)
    if since is not None and (why := why_another(since, state)):
        return News(ended=why)
    if changed := [one.name for one in batch.taken if one.name in read]:
        return News(ended=f"partition {changed[0]} was read before, and has changed since", late=told.late)
    taken = {one.name: one.fingerprint for one in batch.taken}
    waiting = told.why_waiting
    if moving := sorted(taken.keys() & set(state.unsettled)):  # none of them, lest one is read before those that come first
        taken = {}
        waiting = f"a file of partition {moving[0]} changed just now, or is a link"
    if since is not None and not taken:
        return News(waiting=waiting)
    binding = restricted(growth.binding, view, set(taken), {**read, **taken})
    return News(binding, waiting=waiting, late=told.late if taken else ())
