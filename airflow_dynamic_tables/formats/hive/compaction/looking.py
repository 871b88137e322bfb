"""Which partitions of a Hive table have too many small files, and which stay as they are, and why.

What means something is left alone: buckets, an order of rows, folders and files that no refresh wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hive_metastore.ttypes import Partition, Table

from airflow_dynamic_tables.clients.metastore.client import Metastore
from airflow_dynamic_tables.clients.metastore.tables import (
    SCHEMA,
    SNAPSHOT,
    file_uri,
    format_of,
    is_transactional,
    partition_keys_of,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.tables.partitions import PartitionSet
from airflow_dynamic_tables.exceptions import CatalogUnavailableError
from airflow_dynamic_tables.formats.commits import TOKEN
from airflow_dynamic_tables.formats.fingerprints import SameRows
from airflow_dynamic_tables.formats.hive import parameters as tables
from airflow_dynamic_tables.formats.hive.commits import PartitionCommits, Values
from airflow_dynamic_tables.formats.hive.folders import Files, list_folders
from airflow_dynamic_tables.formats.hive.records import undone
from airflow_dynamic_tables.formats.small_files import Limits, PartitionFiles, rounds

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Held:
    """A partition, or a table that has none, and the files in its folder."""

    values: Values
    spec: Mapping[str, str]
    one: Table | Partition
    folder: str
    files: Files

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its URI."""
        return {file: int(info["size"]) for file, info in self.files.items()}


def partitions_of(metastore: Metastore, path: ObjectPath, table: Table) -> dict[Values, Table | Partition]:
    """The partitions that hold rows, by their values; an unpartitioned table is one, without values."""
    if not table.partitionKeys:
        return {(): table}
    partitions = PartitionCommits(metastore, path).partitions(table)
    return {values: one for values, one in partitions.items() if not tables.left_in(table, one.sd.location)}


def hold(table: Table, partitions: Mapping[Values, Table | Partition]) -> list[Held]:
    """List the folders of partitions.

    :raises CatalogUnavailableError: when one is not there, or cannot be listed.
    """
    keys = partition_keys_of(table)
    specs = {values: dict(zip(keys, values, strict=True)) for values in partitions}
    folders = {values: file_uri(one.sd.location).rstrip("/") for values, one in partitions.items()}
    files: dict[str, dict[str, Mapping[str, object]]] = {}
    for file, info in list_folders((folders[values], specs[values]) for values in partitions).files.items():
        files.setdefault(file.rpartition("/")[0], {})[file] = info
    return [
        Held(values, specs[values], one, folders[values], files.get(folders[values], {})) for values, one in partitions.items()
    ]


def scattered(metastore: Metastore, path: ObjectPath, file_format: str, limits: Limits, *, is_cheap: bool) -> list[PartitionSet]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.scattered`; cheap is to look at what the last version wrote."""
    table = tables.load(metastore, path)
    if table is None or why_not(table, file_format) is not None:
        return []
    partitions = partitions_of(metastore, path, table)
    if is_cheap:
        last = tables.versions(table)[-1].token
        new = {values for values, one in partitions.items() if token_of(one) == last and not SameRows.read_in(one.parameters)}
        partitions = {values: partitions[values] for values in new}
    try:
        held = hold(table, partitions)
    except CatalogUnavailableError as error:
        log.warning("Small files of %s stay as they are: %s", path, error)
        return []
    free = (one for one in held if why_held(table, one, limits) is None)
    return rounds(((one.spec, size) for one in free for size in one.sizes.values()), limits)


def count_files(table: Table, partitions: Mapping[Values, Table | Partition], limits: Limits) -> list[PartitionFiles]:
    """See :meth:`~airflow_dynamic_tables.formats.base.LakeTable.count_files`."""
    counted: list[PartitionFiles] = []
    for one in hold(table, partitions):
        sizes = one.sizes.values()
        small = sum(size < limits.small for size in sizes)
        is_due = small > limits.many
        why = why_held(table, one, limits)
        counted.append(PartitionFiles(one.spec, len(sizes), small, sum(sizes), is_due, why))
    return counted


def why_not(table: Table, file_format: str) -> str | None:
    """Why nothing of a table can be compacted; ``None`` when it can."""
    reasons: Iterable[tuple[str, Callable[[], object]]] = (
        ("has no version yet", lambda: not tables.versions(table)),
        ("has files of format ORC, of which Arrow would lose what Spark notes of their types", lambda: file_format == "orc"),
        ("has another format than its definition", lambda: format_of(table) != file_format),
        ("is transactional", lambda: is_transactional(table)),
        ("is bucketed or sorted, which files made of several would not be", lambda: _is_ordered(table)),
        ("was changed by another engine, which took its last version away", lambda: undone(table) is not None),
    )
    return next((why for why, applies in reasons if applies()), None)


def why_held(table: Table, held: Held, limits: Limits) -> str | None:
    """Why a partition stays as it is, whatever its files; ``None`` when it need not."""
    one = held.one
    size = sum(held.sizes.values())
    if token_of(one) is None or not tables.is_below(one.sd.location, f"{tables.root(table)}/{tables.VERSIONS}"):
        return "no refresh wrote its files"
    if tables.torn(table, [one]):
        return "another engine gave it another folder"
    if (one.sd.inputFormat, one.sd.serdeInfo.serializationLib) != (table.sd.inputFormat, table.sd.serdeInfo.serializationLib):
        return "it is stored in another way than its table"
    if _is_ordered(one):
        return "it is bucketed or sorted"
    if not one.parameters.get(tables.ROWS, "").isdecimal():
        return "another engine took away how many rows it has"
    if size > limits.whole:
        return f"it has {size:,} bytes, and a folder of Hive is written anew as a whole, which is done up to {limits.whole:,}"
    return None


def token_of(one: Table | Partition) -> str | None:
    """The token of the version that wrote the rows of a partition, or of a table that has none."""
    token: str | None = (one.parameters or {}).get(TOKEN if isinstance(one, Partition) else SNAPSHOT)
    return token


def _is_ordered(one: Table | Partition) -> bool:
    """Whether rows have their files, or their place in them, for a reason."""
    stored = one.sd
    told = one.parameters or {}
    spark = (told.get(f"{SCHEMA}.{kind}", "0") for kind in ("numBuckets", "numSortCols"))
    is_skewed = stored.skewedInfo is not None and bool(stored.skewedInfo.skewedColNames)
    return (stored.numBuckets or 0) > 0 or bool(stored.bucketCols or stored.sortCols) or is_skewed or any(n != "0" for n in spark)
