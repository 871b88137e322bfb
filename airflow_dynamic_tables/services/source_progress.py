"""Watermark sources of a table: their partitions, which of them are complete, and the table partitions that they complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from airflow_dynamic_tables.catalog.base import ReadableCatalog
from airflow_dynamic_tables.catalog.values import CatalogView
from airflow_dynamic_tables.clients.files import FileEntry, exists, list_entries, plain_path
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.core.partitions import (
    NO_PARTITIONS,
    NULL_PARTITION,
    PartitionSet,
    PartitionSpec,
    describe,
    parse_spec,
)
from airflow_dynamic_tables.core.refresh.permissions import Ability, Allowed
from airflow_dynamic_tables.core.refresh.plan import SourceBinding, SourcePart
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.schedule import APART, on_the_wall
from airflow_dynamic_tables.core.schema import is_hidden, partition_name, partition_of
from airflow_dynamic_tables.core.streaming.partition_commits import is_closed, read_after, to_publish
from airflow_dynamic_tables.core.streaming.source_watermarks import (
    EMPTY,
    CompleteWhen,
    PartitionBatch,
    PartitionOrder,
    PartitionTimeError,
    PartitionWatermark,
    SeenPartition,
    TimeOf,
    WholeBy,
    choose,
    reached_by,
)
from airflow_dynamic_tables.core.versions import Version
from airflow_dynamic_tables.definitions.model import DynamicTable
from airflow_dynamic_tables.exceptions import ConfigurationError, UpstreamError
from airflow_dynamic_tables.formats.base import Increment, why_another
from airflow_dynamic_tables.formats.registry import bind
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.workspace import Workspace

_NAMED = 3
"""Limit of partitions named in a message."""


@dataclass(frozen=True, slots=True)
class SourceGrowth:
    """The growth of one source.

    ``binding`` has all its files, ``batch`` the partitions to read now, ``read`` those read before, and ``reached`` its watermark
    so far.
    """

    source: Source
    binding: SourceBinding
    batch: PartitionBatch
    read: Mapping[str, str]
    reached: datetime | None


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of all watermark sources of a table, by full name.

    ``formatters`` and ``zone`` are those of the table; ``base`` is the token of the table version that this is relative to.
    """

    sources: Mapping[str, SourceGrowth]
    formatters: Mapping[str, str]
    zone: ZoneInfo
    base: str | None

    @property
    def watermark(self) -> datetime | None:
        """The watermark of all sources after this batch is read; naive; ``None`` if a source has no complete partition yet."""
        return _earliest(one.batch.watermark for one in self.sources.values())

    @property
    def reached_at(self) -> datetime | None:
        """The watermark, in the time zone of the table."""
        return self.watermark.replace(tzinfo=self.zone) if self.watermark is not None else None

    def all_partitions_until(self, at: datetime) -> datetime | None:
        """Return the time up to which all partitions exist, at most ``at``: the watermark, unless the next partition is open.

        :param at: timezone-aware.
        :return: ``None`` if a source has no complete partition yet.
        """
        wall = on_the_wall(at.astimezone(self.zone))
        reached = [at]
        for one in self.sources.values():
            watermark, own = one.batch.watermark, one.source.watermark
            if watermark is None or own is None:
                return None
            if own.end_of(watermark) <= wall:
                reached.append(watermark.replace(tzinfo=self.zone))
        return min(reached)

    @property
    def published(self) -> PartitionSet:
        """The complete partitions of the table to make or replace; without time partitions, all of it if anything is new."""
        reached = _earliest(one.reached for one in self.sources.values())
        published = NO_PARTITIONS
        for one in self.sources.values():
            published = published.union(to_publish(one.batch.taken, reached, self.watermark, self.formatters))
        return published

    @property
    def obstacle(self) -> str | None:
        """Why nothing can be read now, without a full stop; ``None`` if something can."""
        for name, one in self.sources.items():
            if one.batch.rewritten is not None:
                rewritten = one.batch.rewritten
                why = rewritten.obstacle
                return f"partition {rewritten.name} of {name} was read before and is being rewritten: {why}"
        return None

    @property
    def late(self) -> tuple[str, ...]:
        """Partitions of the sources that arrived or changed after their time was over for the table."""
        return tuple(f"{one.name} of {name}" for name, growth in self.sources.items() for one in growth.batch.late)

    def read_now(self, name: str) -> tuple[SeenPartition, ...]:
        """Return the source partitions to read: the complete ones whose rows all belong to complete table partitions."""
        watermark = self.watermark
        readable = self.sources[name].batch.readable
        return () if watermark is None else tuple(one for one in readable if is_closed(one, watermark, self.formatters))

    def binding(self, name: str, view: str, published: PartitionSet) -> SourceBinding:
        """Return the binding of a source for a refresh of these partitions.

        :raises UpstreamError: if nothing of it can be read yet.
        """
        growth = self.sources[name]
        if self.obstacle is not None:
            raise UpstreamError(f"{self.obstacle}; it is read when that is over.")
        partitions = self.read_now(name)
        if not partitions and growth.read:
            raise UpstreamError(f"Every partition of {name} that was read is gone; look whether its files are in reach.")
        if not partitions and growth.binding.schema is None:
            raise UpstreamError(f"{name} has no partition yet that is whole: {self.why_waiting or 'nothing is there'}.")
        whole = replace(growth.batch, readable=partitions)
        after = read_after(whole, growth.read, published, self.formatters)
        return restricted(growth.binding, view, {one.name for one in partitions}, after)

    @property
    def why_waiting(self) -> str:
        """Why existing partitions are not read yet, without a full stop; empty if there are none."""
        waiting = [(name, one) for name, growth in self.sources.items() for one in growth.batch.waiting]
        told = [f"{one.name} of {name}: {_why(one)}" for name, one in waiting[:_NAMED]]
        more = [f"and {len(waiting) - _NAMED} more"] if len(waiting) > _NAMED else []
        return "; ".join([*told, *more])

    def __str__(self) -> str:
        """Describe the state of the sources."""
        watermark = self.watermark
        text = f"watermark {watermark.isoformat()}" if watermark is not None else "no watermark yet"
        if self.late:
            text += f", {len(self.late)} late: {', '.join(self.late[:_NAMED])}" + (", …" if len(self.late) > _NAMED else "")
        return f"{text}, waiting for {self.why_waiting}" if self.why_waiting else text


def _why(one: SeenPartition) -> str:
    if one.obstacle is not None:
        return one.obstacle
    return "its time has not come yet; is it mistyped?" if one.is_ahead else "one before it is not whole"


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    known = list(times)
    return min((time for time in known if time is not None), default=None) if None not in known else None


def restricted(binding: SourceBinding, view: str, names: set[str], after: Mapping[str, str]) -> SourceBinding:
    """Return the binding restricted to the files of these partitions."""
    version = f"partitions:{hashlib.sha256(repr(sorted(after.items())).encode()).hexdigest()[:16]}"
    state = binding.state
    if state is not None:
        unsettled = tuple(name for name in state.unsettled if name in names)
        state = replace(state, version=version, partitions=dict(after), unsettled=unsettled)
    return replace(with_files(binding, names.intersection), view=view, version=version, state=state)


def with_files(binding: SourceBinding, select: Callable[[set[str]], Iterable[str]]) -> SourceBinding:
    """Return the binding with only the files of some partitions, and the state that it has.

    :param select: returns these of all partitions, by their texts.
    """
    names = partition_names(binding)
    selected = {*select({*names.values()})}

    def remaining(files: Iterable[str]) -> tuple[str, ...]:
        return tuple(file for file in files if names[file] in selected)

    parts = (replace(part, files=remaining(part.files)) for part in binding.parts)
    return replace(binding, files=remaining(binding.files), parts=tuple(part for part in parts if part.files))


def partition_names(binding: SourceBinding) -> dict[str, str]:
    """Return the partition text of each file of a source."""
    keys = binding.partition_keys
    return {file: _name_of(file, part, keys) for part in binding.every_part for file in part.files}


def _name_of(file: str, part: SourcePart, keys: Sequence[str]) -> str:
    if part.partition is not None:
        return part.partition
    told = dict(part.values)
    if part.base_path is not None:
        folder = plain_path(file)[len(plain_path(part.base_path)) + 1 :].rpartition("/")[0]
        told |= {key.lower(): value for key, value in partition_of(folder).items()}
    by_lower = {key.lower(): value for key, value in told.items()}
    return describe({key: by_lower[key.lower()] for key in keys if key.lower() in by_lower})


_VIEW = "growth"
"""Placeholder for the view name, which is not known yet."""

_JUST_NOW = "a file came just now"


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of a source partition, listed before the files to read are listed.

    ``values`` are those of the partition keys, in their order; ``location`` is the URI of the folder. ``files`` are the paths of
    all files in it. ``changed_at`` and ``created_at`` are the newest and oldest modification times in it, by the clock of the
    store; ``None`` if unavailable.
    """

    values: Mapping[str, str]
    location: str
    files: frozenset[str] = frozenset()
    changed_at: datetime | None = None
    created_at: datetime | None = None
    is_link: bool = False

    def has(self, name: str) -> bool:
        """Return whether the folder directly contains a file with that name."""
        if self.is_link:  # the target of a link is not listed
            return exists(f"{self.location}/{name}")
        return f"{plain_path(self.location)}/{name}" in self.files


def look(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source], current: Version | None
) -> Growth | None:
    """List every watermark source of a table; ``None`` if there are none.

    The partitions read so far are those recorded in the ledger with the current version, so they follow commits and rollbacks.

    :raises ConfigurationError: if partition values are no time, or a class of the user cannot be used.
    :raises CatalogUnavailableError: if a catalog or store is unavailable.
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
    base = current.token if current is not None else None
    return Growth(growing, table.formatters, ZoneInfo(table.timezone), base) if growing else None


def recorded_watermark(
    workspace: Workspace, table: DynamicTable, sources: Mapping[TableIdentifier, Source], current: Version | None
) -> datetime | None:
    """Return the watermark of a table version, naive; ``None`` if a source has none yet, or there is no watermark source."""
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
    """List one source, given the fingerprints of the partitions read so far; raises the same errors as :func:`look`."""
    folders, binding = _listed(workspace, source, watermark, read)
    allowed = workspace.settings.allowed
    time_of = _time_of(watermark, binding.partition_keys, allowed)
    now = workspace.now()
    newest = max((folder.changed_at for folder in folders.values() if folder.changed_at), default=now)
    judge = _obstacle_of(watermark.complete, max(now, newest), allowed)
    wall = on_the_wall(now.astimezone(ZoneInfo(timezone)))
    listed = _by_partition(binding)
    seen: list[SeenPartition] = []
    try:
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
        reached = reached_by(read, time_of, watermark)
    except (PartitionTimeError, OverflowError) as error:
        raise ConfigurationError(
            f"{source.identifier}: {error}. Nothing is read of it until that partition is gone, or its time can be read."
        ) from error
    return SourceGrowth(source, binding, choose(seen, read, watermark, reached), read, reached)


def _listed(
    workspace: Workspace, source: Source, watermark: PartitionWatermark, read: Mapping[str, str]
) -> tuple[dict[str, PartitionFolder], SourceBinding]:
    """List the folders of the partitions, and then the files, because a marker is written after all files."""
    catalog = workspace.readable(source.identifier.catalog)
    folders = _below(source.path, source.partition_keys) if source.path is not None else {}
    binding = bind(source, catalog.stores(), _VIEW)
    if source.path is not None:
        return folders, binding
    partitions = binding.state.partitions if binding.state is not None else None
    moved = {name for name, fingerprint in (partitions or {}).items() if read.get(name) != fingerprint}
    needs_folders = watermark.complete.by is not WholeBy.METASTORE or watermark.order is PartitionOrder.CREATED
    if not moved or not needs_folders:
        return {}, binding
    recorded = ((describe(values), values, location) for values, location in _of_catalog(catalog, source.identifier, {}))
    folders = {name: _folder(values, location, list_entries(location)) for name, values, location in recorded if name in moved}
    return folders, bind(source, catalog.stores(), _VIEW)


def _fingerprints(
    binding: SourceBinding, folders: Mapping[str, PartitionFolder], watermark: PartitionWatermark, read: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield each existing partition with its fingerprint.

    An empty folder is omitted if completeness is defined by quiet time, because it may not have been filled yet.
    """
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
    """Return why a folder is no longer quiet: a file arrived after it was listed."""
    is_quiet = watermark.complete.by is not WholeBy.QUIET or folder.is_link or folder.files.issuperset(files)
    return None if is_quiet else _JUST_NOW


def _time_of(watermark: PartitionWatermark, keys: tuple[str, ...], allowed: Allowed) -> TimeOf:
    """Return the function that extracts the time of a partition; without keys, those of the partition are used in order."""
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


def added_since(
    workspace: Workspace, source: Source, watermark: PartitionWatermark, timezone: str, view: str, since: SourceState | None
) -> Increment:
    """Return the partitions that are complete now, in order, each with all its files.

    A change of a partition that was read ends the stream; until that partition is complete again, nothing is read. Removed
    partitions are ignored, because absence proves nothing.

    :param since: the state that was read, from the binding of earlier changes.
    """
    read = dict(since.partitions or {}) if since is not None else {}
    growth = look_at(workspace, source, watermark, read, timezone)
    batch = growth.batch
    told = Growth({str(source.identifier): growth}, {}, ZoneInfo(timezone), None)
    if told.obstacle is not None:
        return Increment(waiting=told.obstacle)
    state = growth.binding.state or SourceState(growth.binding.version)
    if since is not None and (why := why_another(since, state)):
        return Increment(ended=why)
    if changed := [one.name for one in batch.taken if one.name in read]:
        return Increment(ended=f"partition {changed[0]} was read before, and has changed since", late=told.late)
    taken = {one.name: one.fingerprint for one in batch.taken}
    waiting = told.why_waiting
    if moving := sorted(taken.keys() & set(state.unsettled)):  # none is read, so that the order of partitions is kept
        taken = {}
        waiting = f"a file of partition {moving[0]} changed just now, or is a link"
    if since is not None and not taken:
        return Increment(waiting=waiting)
    binding = restricted(growth.binding, view, set(taken), {**read, **taken})
    return Increment(binding, waiting=waiting, late=told.late if taken else ())


def made(class_path: str, method: str, allowed: Allowed) -> Any:
    """Instantiate a class without arguments.

    :raises ConfigurationError: if there is no such class or method, it cannot be instantiated, or Python is not allowed.
    """
    if problem := allowed.refusal(Ability.PYTHON_FUNCTIONS):
        raise ConfigurationError(f"{class_path}: {problem}.")
    module, _, name = class_path.partition(":")
    try:
        thing = getattr(import_module(module), name)()
    except (Exception, SystemExit) as error:  # sys.exit in a user's module must not end this process
        raise ConfigurationError(
            f"{class_path} cannot be made ({type(error).__name__}: {error}); it has to be importable where refreshes run, "
            "and is made without arguments."
        ) from error
    if not callable(getattr(thing, method, None)):
        raise ConfigurationError(f"{class_path} has no method {method!r}.")
    return thing


Obstacle = Callable[[PartitionFolder], str | None]
"""Returns why a partition is incomplete, as the end of a sentence; ``None`` if it is complete."""


def _obstacle_of(complete: CompleteWhen, store_time: datetime, allowed: Allowed) -> Obstacle:
    """Return the check for complete partitions.

    :param store_time: the current time by the clock of the store.
    :raises ConfigurationError: if a class of the user cannot be used.
    """
    if complete.by is WholeBy.FILE:
        return lambda folder: None if folder.has(complete.told_by) else f"it has no {complete.told_by} yet"
    if complete.by is WholeBy.QUIET:
        return lambda folder: _not_quiet(folder, complete, store_time)
    if complete.by is WholeBy.CLASS:
        judge = made(complete.told_by, "is_complete", allowed)
        return lambda folder: _not_complete(judge, complete.told_by, folder)
    return lambda _folder: None  # listed in the metastore, and therefore complete


def _not_quiet(folder: PartitionFolder, complete: CompleteWhen, store_time: datetime) -> str | None:
    if folder.changed_at is None:
        return "its store does not say when it changed; use {file: _SUCCESS} under 'complete_when'"
    if store_time - folder.changed_at >= complete.quiet:
        return None
    return f"it changed at {folder.changed_at.isoformat()}, and has to be quiet for {complete.quiet}"


def _not_complete(judge: Any, name: str, folder: PartitionFolder) -> str | None:
    try:
        answer = judge.is_complete(folder)
    except (Exception, SystemExit) as error:  # a service that it calls may be temporarily unavailable
        return shown(f"{name} cannot tell ({type(error).__name__}: {error})")
    if not isinstance(answer, bool):
        raise ConfigurationError(f"{name}.is_complete gives {answer!r}; it has to give True or False.")
    return None if answer else f"{name} says so"


def partition_folders(workspace: Workspace, table: TableIdentifier, spec: PartitionSpec) -> list[str]:
    """Return the URIs of the folders of the table partitions that match ``spec``, as recorded in the catalog."""
    return [location for _, location in _of_catalog(workspace.readable(table.catalog), table, spec)]


def _of_catalog(
    catalog: ReadableCatalog, identifier: TableIdentifier, spec: PartitionSpec
) -> Iterator[tuple[dict[str, str], str]]:
    table = catalog.get_table(identifier.path)
    root = ("" if isinstance(table, CatalogView) else table.location or "").rstrip("/")
    for partition in catalog.get_partitions(identifier.path, spec):
        values = dict(partition.spec)
        yield values, partition.location or f"{root}/{partition_name(tuple(values), tuple(values.values()))}"


def _below(root: str, keys: Sequence[str]) -> dict[str, PartitionFolder]:
    top = plain_path(root)
    inside: dict[str, list[FileEntry]] = {}
    for entry in list_entries(root):
        names = entry.path.rstrip("/")[len(top) + 1 :].split("/")
        if len(names) >= len(keys) and not is_hidden("/".join(names[: len(keys)])):
            inside.setdefault("/".join(names[: len(keys)]), []).append(entry)
    folders: dict[str, PartitionFolder] = {}
    for relative, entries in inside.items():
        spec = partition_of(relative)
        if set(keys) <= spec.keys():
            values = {key: spec[key] for key in keys}
            name = describe({key: value or NULL_PARTITION for key, value in values.items()})
            folders[name] = _folder(values, f"{root.rstrip('/')}/{relative}", entries)
    return folders


def _folder(values: Mapping[str, str], location: str, entries: Sequence[FileEntry]) -> PartitionFolder:
    times = [entry.changed_at for entry in entries if entry.changed_at is not None]
    own = plain_path(location)
    return PartitionFolder(
        values=values,
        location=location,
        files=frozenset(entry.path for entry in entries if not entry.is_folder),
        changed_at=max(times, default=None),
        created_at=min(times, default=None),
        is_link=any(entry.is_link for entry in entries if entry.path == own),
    )
