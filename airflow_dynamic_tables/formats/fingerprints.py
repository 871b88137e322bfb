"""What a table is like when it is read: fingerprints of its partitions, by which a later refresh can tell what has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from airflow_dynamic_tables.clients.files import fingerprint
from airflow_dynamic_tables.core.tables.partitions import describe

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


def schema_digest(columns: str) -> str:
    """What tells columns from others.

    :param columns: as text, in whatever language the format has; empty when the files alone say what they are.
    """
    return hashlib.sha256(columns.encode()).hexdigest()[:16]


def _name(file: File) -> str:
    return file[0]
