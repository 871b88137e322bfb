"""What a table is like when it is read: fingerprints of its partitions, by which a later refresh can tell what has changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_dynamic_tables.clients.files import fingerprint, is_settled
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.tables.partitions import describe
from airflow_dynamic_tables.formats.commits import COMPACTION

File = tuple[str, Mapping[str, object]]
"""Its name, and what its store or table says of it: size, and a time or tag of the last change where it could be rewritten."""


def fingerprints(files: Iterable[tuple[Mapping[str, str | None], File]]) -> dict[str, str]:
    """A fingerprint of the files of each partition, by its text; of an unpartitioned table that is empty.

    :param files: each with the partition that it is of.
    """
    groups: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for spec, file in files:
        groups.setdefault(tuple(spec.items()), []).append(file)
    return {describe(dict(spec)): fingerprint(dict(sorted(group, key=_name))) for spec, group in groups.items()}


_MERGED = re.compile(r"(?:.*/)?merged-([0-9a-f]{32})-\d+\.parquet", re.DOTALL)
_MODULUS = 1 << 128


def name_of_merged(files: Iterable[File], number: int) -> str:
    """The name of a file that holds the rows of these: it says which they are, so that nobody takes the rows for new ones.

    :param number: of the file among those that are written at once.
    """
    return f"merged-{_sum(files):032x}-{number}.parquet"


def lasting_fingerprints(files: Iterable[tuple[Mapping[str, str | None], File]]) -> dict[str, str]:
    """As :func:`fingerprints`, of files that are never rewritten in place; the same when some of them were merged into others."""
    groups: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for spec, file in files:
        groups.setdefault(tuple(spec.items()), []).append(file)
    return {describe(dict(spec)): f"rows:{_sum(group):032x}" for spec, group in groups.items()}


def _sum(files: Iterable[File]) -> int:
    """A number of some files: that of a merged file is the sum of those that it was made of."""
    return sum(map(_number, files)) % _MODULUS


def _number(file: File) -> int:
    name, told = file
    if made := _MERGED.fullmatch(name):
        return int(made[1], 16)
    return int.from_bytes(hashlib.sha256(f"{name}\0{told.get('size')}".encode()).digest()[:16])


@dataclass(frozen=True, slots=True)
class SameRows:
    """What a compaction notes in a partition, or in a table that has none: which fingerprint its files stand for.

    ``token`` is that of the compaction, ``of`` that of the version whose rows they are, which lay at ``location``. As long as
    the files have the fingerprint ``after``, they are those of the compaction, and the rows those that had ``before``.
    """

    token: str
    of: str
    location: str
    before: str
    after: str

    def to_parameter(self) -> str:
        """As :meth:`read_in` reads it."""
        return json.dumps(to_plain(self), sort_keys=True)

    @classmethod
    def read_in(cls, parameters: Mapping[str, str] | None) -> SameRows | None:
        """The note in the parameters of a partition or table; ``None`` when there is none that can be read."""
        try:
            return from_plain(cls, json.loads((parameters or {})[COMPACTION]))
        except (KeyError, ValueError):
            return None


def unsettled(files: Iterable[tuple[Mapping[str, str | None], File]], seen_at: datetime) -> tuple[str, ...]:
    """Those partitions, by their texts, of which a file may change and look the same, see :func:`is_settled`.

    :param seen_at: a time, timezone-aware, before any of them was looked at.
    """
    return tuple(sorted({describe(spec) for spec, (_, info) in files if not is_settled(info, seen_at)}))


def schema_digest(columns: str) -> str:
    """What tells columns from others.

    :param columns: as text, in whatever language the format has; empty when the files alone say what they are.
    """
    return hashlib.sha256(columns.encode()).hexdigest()[:16]


def _name(file: File) -> str:
    return file[0]
