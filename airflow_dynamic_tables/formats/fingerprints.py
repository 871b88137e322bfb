"""Fingerprints of files and partitions, which tell whether they are the same as before."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.clients.files import changed_at, fingerprint, is_settled
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.source_changes import SourceState
from airflow_dynamic_tables.formats.commits import COMPACTION

File = tuple[str, Mapping[str, object]]
"""A file's name and its attributes from store or table: size, and a time or tag of the last change if it can be rewritten."""


def fingerprints(files: Iterable[tuple[Mapping[str, str | None], File]]) -> dict[str, str]:
    """Return a fingerprint of the files of each partition, by its text, which is empty for an unpartitioned table."""
    groups: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for spec, file in files:
        groups.setdefault(tuple(spec.items()), []).append(file)
    return {describe(dict(spec)): fingerprint(dict(sorted(group, key=_name))) for spec, group in groups.items()}


def partition_sizes(files: Iterable[tuple[Mapping[str, str | None], int]]) -> dict[str, int]:
    """Return the bytes of the files of each partition, by its text, from those of each file."""
    found: Counter[tuple[tuple[str, str | None], ...]] = Counter()
    for spec, size in files:
        found[tuple(spec.items())] += size
    return {describe(dict(spec)): size for spec, size in found.items()}


_MOST_COMPARED = 1_000_000
"""Limit of files, in all compared sets together, by which the files that were added to partitions are searched."""


def added_files(
    files: Iterable[tuple[Mapping[str, str], File]], since: SourceState
) -> list[tuple[Mapping[str, str], list[str]]] | str:
    """Return by partition the files that were added since a state, or why other files may have been changed or removed.

    A state has no names of files. Its files are those of a partition that were changed before all others, if they have the
    partition's fingerprint. Otherwise they are not known: one was changed or removed, or an added one has an earlier time.

    :param files: those of all partitions; one without attributes is the folder of a partition.
    :param since: the state, with fingerprints of :func:`fingerprints`.
    """
    if since.partitions is None:
        return "its earlier files are unknown"
    if since.unsettled:
        return f"{since.unsettled[0] or 'it'} was changed just before it was read"
    groups: dict[str, tuple[Mapping[str, str], list[File]]] = {}
    for spec, file in files:
        groups.setdefault(describe(dict(spec)), (spec, []))[1].append(file)
    if gone := sorted(since.partitions.keys() - groups.keys()):
        return f"the files of {gone[0] or 'it'} were removed"
    added = []
    left = _MOST_COMPARED
    for name, (spec, group) in groups.items():
        found: list[str] | None = [file for file, info in group if info]
        if (before := since.partitions.get(name)) is not None:
            found = _added_to(sorted(group, key=_name), before, left // len(group))
            left -= len(found or ()) * len(group)
        if found is None:
            return f"files of {name or 'it'} may have been changed or removed"
        if found:
            added.append((spec, found))
    return added


def _added_to(group: Sequence[File], before: str, most: int) -> list[str] | None:
    """Return the names of the files that were added to those with a fingerprint; ``None`` if the latter are not found.

    :param most: the limit of files that are taken for added ones.
    """
    times = {name: time for name, info in group if info and (time := changed_at(info)) is not None}
    newest = sorted(times, key=lambda name: (times[name], name), reverse=True)[:most]
    for number in range(len(newest) + 1):
        new = {*newest[:number]}
        if fingerprint({name: info for name, info in group if name not in new}) == before:
            return sorted(new)
    return None


_MERGED = re.compile(r"(?:.*/)?merged-([0-9a-f]{32})-\d+\.parquet", re.DOTALL)


_MODULUS = 1 << 128


def name_of_merged(files: Iterable[File], number: int) -> str:
    """Return the name of a file merged from others; it encodes their fingerprint, so that rows are not taken for new ones."""
    return f"merged-{_sum(files):032x}-{number}.parquet"


def lasting_fingerprints(files: Iterable[tuple[Mapping[str, str | None], File]]) -> dict[str, str]:
    """Return fingerprints like :func:`fingerprints`, for immutable files; merging files does not change them."""
    groups: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for spec, file in files:
        groups.setdefault(tuple(spec.items()), []).append(file)
    return {describe(dict(spec)): f"rows:{_sum(group):032x}" for spec, group in groups.items()}


def _sum(files: Iterable[File]) -> int:
    """Return a fingerprint of files; that of a merged file equals the sum of its sources."""
    return sum(map(_number, files)) % _MODULUS


def _number(file: File) -> int:
    name, told = file
    if made := _MERGED.fullmatch(name):
        return int(made[1], 16)
    return int.from_bytes(hashlib.sha256(f"{name}\0{told.get('size')}".encode()).digest()[:16])


@dataclass(frozen=True, slots=True)
class SameRows:
    """The record of a compaction in a partition, or an unpartitioned table: the fingerprint that its files represent.

    ``token`` is the token of the compaction, ``of`` that of the version with the same rows, which were at ``location``. While the
    files have the fingerprint ``after``, the rows are those with the fingerprint ``before``.
    """

    token: str
    of: str
    location: str
    before: str
    after: str

    def to_parameter(self) -> str:
        """Serialize the record for :meth:`read_in`."""
        return json.dumps(to_plain(self), sort_keys=True)

    @classmethod
    def read_in(cls, parameters: Mapping[str, str] | None) -> SameRows | None:
        """Return the record in the parameters of a partition or table; ``None`` if there is no valid one."""
        try:
            return from_plain(cls, json.loads((parameters or {})[COMPACTION]))
        except (KeyError, ValueError):
            return None


def unsettled(files: Iterable[tuple[Mapping[str, str | None], File]], seen_at: datetime) -> tuple[str, ...]:
    """Return the partitions, as texts, with files that may change without a visible difference, see :func:`is_settled`.

    :param seen_at: a timezone-aware time before any of them was listed.
    """
    return tuple(sorted({describe(spec) for spec, (_, info) in files if not is_settled(info, seen_at)}))


def schema_digest(columns: str) -> str:
    """Return a digest of a schema.

    :param columns: the columns as text in the format's own syntax; empty if only the files define them.
    """
    return hashlib.sha256(columns.encode()).hexdigest()[:16]


def _name(file: File) -> str:
    return file[0]
