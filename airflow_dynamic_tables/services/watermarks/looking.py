"""How far the sources of a table with a watermark have come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.clients.files import plain_path
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.refresh.allowed import Allowed
from airflow_dynamic_tables.core.refresh.plan import SourceBinding
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule.wall_clock import APART, on_the_wall
from airflow_dynamic_tables.core.streaming.batches import EMPTY, SeenPartition, TimeOf, choose, reached_by
from airflow_dynamic_tables.core.streaming.partition_time import PartitionTimeError
from airflow_dynamic_tables.core.streaming.watermarks import PartitionOrder, PartitionWatermark, WholeBy
from airflow_dynamic_tables.core.tables.partitions import parse_spec
from airflow_dynamic_tables.core.tables.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.formats.registry import bind
from airflow_dynamic_tables.services.queries.views import inline_views
from airflow_dynamic_tables.services.watermarks.classes import made
from airflow_dynamic_tables.services.watermarks.growth import Growth, SourceGrowth
from airflow_dynamic_tables.services.watermarks.places import PartitionFolder, folders_of, partition_names
from airflow_dynamic_tables.services.watermarks.wholeness import obstacle_of
from airflow_dynamic_tables.services.workspace import Workspace

_VIEW = "growth"
"""Stands for the name of the view, which nobody knows yet."""

_JUST_NOW = "a file came just now"


def look(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source], current: Version | None
) -> Growth | None:
    """Look at every source of a table that has a watermark; ``None`` when none has.

    What was read so far is what the ledger recorded with the current version, so it follows commits and rollbacks.

    :raises ConfigurationError: when a partition has values that are no time, or a class of the user cannot be used.
    :raises CatalogUnavailableError: when somebody has to be asked who does not answer.
    """
    if not any(source.watermark for source in sources.values()):
        return None
    read = workspace.ledger.source_states(current.token) if current is not None else {}
    growing: dict[str, SourceGrowth] = {}
    for identifier in inline_views(workspace, table, sources).upstream:
        source = sources.get(identifier)
        if source is not None and source.watermark is not None:
            state = read.get(str(identifier))
            known = dict(state.partitions) if state is not None and state.partitions is not None else {}
            growing[str(identifier)] = look_at(workspace, source, source.watermark, known, table.timezone)
    return Growth(growing, table.formatters, current.token if current is not None else None) if growing else None


def recorded_watermark(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source], current: Version | None
) -> datetime | None:
    """The watermark of a version of a table, naive; ``None`` when a source has none yet, or no source ever has one."""
    read = workspace.ledger.source_states(current.token) if current is not None else {}
    reached: list[datetime | None] = []
    for identifier in inline_views(workspace, table, sources).upstream:
        source = sources.get(identifier)
        if source is not None and source.watermark is not None:
            state = read.get(str(identifier))
            time_of = _time_of(source.watermark, source.partition_keys, workspace.settings.allowed)
            reached.append(reached_by((state.partitions or ()) if state is not None else (), time_of, source.watermark))
    return min((time for time in reached if time is not None), default=None) if None not in reached else None


def look_at(
    workspace: Workspace, source: Source, watermark: PartitionWatermark, read: Mapping[str, str], timezone: str
) -> SourceGrowth:
    """Look at one source, of which partitions with these fingerprints were read; raises what :func:`look` does."""
    folders, binding = _listed(workspace, source, watermark, read)
    allowed = workspace.settings.allowed
    time_of = _time_of(watermark, binding.partition_keys, allowed)
    now = workspace.now()
    newest = max((folder.changed_at for folder in folders.values() if folder.changed_at), default=now)
    judge = obstacle_of(watermark.complete, max(now, newest), allowed)
    wall = on_the_wall(now.astimezone(ZoneInfo(timezone)))
    listed = _by_partition(binding)
    seen: list[SeenPartition] = []
    try:
        reached = reached_by(read, time_of, watermark)
        for name, fingerprint in _fingerprints(binding, folders, watermark, read):
            start = time_of(parse_spec(name) if name else {})
            folder = folders.get(name)
            obstacle = None
            if fingerprint != read.get(name) and watermark.complete.by is not WholeBy.METASTORE:
                obstacle = (
                    "it came just now" if folder is None else judge(folder) or _grown(folder, listed.get(name, ()), watermark)
                )
            seen.append(
                SeenPartition(
                    name=name,
                    start=start,
                    end=watermark.end_of(start),
                    fingerprint=fingerprint,
                    created_at=folder.created_at if folder is not None else None,
                    obstacle=obstacle,
                    is_ahead=start > wall + APART,
                )
            )
    except (PartitionTimeError, OverflowError) as error:
        raise ConfigurationError(
            f"{source.identifier}: {error}. Nothing is read of it until that partition is gone, or its time can be read."
        ) from error
    return SourceGrowth(source, binding, choose(seen, read, watermark, reached), read, reached)


def _listed(
    workspace: Workspace, source: Source, watermark: PartitionWatermark, read: Mapping[str, str]
) -> tuple[dict[str, PartitionFolder], SourceBinding]:
    """The folders of the partitions, and after them the files: whoever leaves a marker has written all files before."""
    stores = workspace.readable(source.identifier.catalog).stores()
    if source.path is not None:
        folders = folders_of(workspace, source, source.partition_keys, None)
        return folders, bind(source, stores, _VIEW)
    binding = bind(source, stores, _VIEW)
    partitions = binding.state.partitions if binding.state is not None else None
    moved = [name for name, fingerprint in (partitions or {}).items() if read.get(name) != fingerprint]
    needs_folders = watermark.complete.by is not WholeBy.METASTORE or watermark.order is PartitionOrder.CREATED
    if not moved or not needs_folders:
        return {}, binding
    return folders_of(workspace, source, binding.partition_keys, moved), bind(source, stores, _VIEW)


def _fingerprints(
    binding: SourceBinding, folders: Mapping[str, PartitionFolder], watermark: PartitionWatermark, read: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each partition that is there, and what is in it. A folder that is only quiet, and empty, may be one that is yet to fill."""
    partitions = dict((binding.state.partitions if binding.state is not None else None) or {})
    yield from partitions.items()
    for name in folders:
        if name not in partitions and (watermark.complete.by is not WholeBy.QUIET or name in read):
            yield name, EMPTY


def _by_partition(binding: SourceBinding) -> dict[str, set[str]]:
    files: dict[str, set[str]] = {}
    for file, name in partition_names(binding).items():
        files.setdefault(name, set()).add(plain_path(file))
    return files


def _grown(folder: PartitionFolder, files: Iterable[str], watermark: PartitionWatermark) -> str | None:
    """Why a folder is not quiet any more: a file came after it was looked at."""
    is_quiet = watermark.complete.by is not WholeBy.QUIET or folder.is_link or folder.files.issuperset(files)
    return None if is_quiet else _JUST_NOW


def _time_of(watermark: PartitionWatermark, keys: tuple[str, ...], allowed: Allowed) -> TimeOf:
    """What tells the time of a partition; without keys, those of the partition count, in their order."""
    extractor = watermark.extractor
    if extractor.class_path is None:
        return lambda spec: extractor.time_of(spec, keys or tuple(spec))
    class_path = extractor.class_path
    custom = made(class_path, "extract", allowed)

    def time_of(spec: Mapping[str, str]) -> datetime:
        names = list(keys or spec)
        try:
            time = custom.extract(names, [spec.get(key) for key in names])
        except (Exception, SystemExit) as error:
            raise PartitionTimeError(
                shown(f"{class_path} gives no time of {dict(spec)} ({type(error).__name__}: {error})")
            ) from error
        if not isinstance(time, datetime) or time.tzinfo is not None:
            raise PartitionTimeError(
                f"{class_path} gives {time!r} for {dict(spec)}; it has to give a datetime without a time zone"
            )
        return time

    return time_of
