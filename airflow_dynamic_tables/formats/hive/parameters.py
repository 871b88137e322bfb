"""Hive table parameters: versions, the pending commit and locations.

The parameters are::

    dynamic-tables.revision      changes on every update, for compare-and-swap (the catalog changes it, too)
    dynamic-tables.id            identifies the table independently of its name and metastore
    dynamic-tables.location      the folder of the table, constant across versions
    dynamic-tables.snapshot      the token of the current version
    dynamic-tables.version.<n>   the record of commit n; the newest ones are kept
    dynamic-tables.pending       the commit in progress, of any process
    dynamic-tables.compaction    the compaction that wrote the files, see ``fingerprints.SameRows``
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from urllib.parse import quote, unquote
from uuid import uuid4

from hive_metastore.ttypes import NoSuchObjectException, Partition, Table

from airflow_dynamic_tables.clients.metastore.client import TYPES_STAY, Metastore
from airflow_dynamic_tables.clients.metastore.tables import (
    IDENTITY,
    REVISION,
    SNAPSHOT,
    UNNAMED_SIGNS,
    columns_of,
    file_uri,
    has_columns,
    joined_parameter,
    partition_keys_of,
    set_columns,
    split_parameter,
)
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.schema import Column, Rebuild, TableLayout, parted
from airflow_dynamic_tables.core.types import TypeLimits
from airflow_dynamic_tables.core.versions import Version, recorded
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import COMPACTION, NUMBER, TOKEN, fresh_until
from airflow_dynamic_tables.formats.fingerprints import SameRows

LOCATION = "dynamic-tables.location"
VERSION = f"{NUMBER}."
PENDING = "dynamic-tables.pending"

VERSIONS = "_versions"
"""Subfolder of all stages; hidden, because engines may list the table's folder."""

EMPTY = "empty"
"""Folder in a stage that is the location of partitions without rows during its commit."""

GUARD = "dynamic-tables.guard"
"""Parameter that marks a partition as a guard of a commit."""

ROWS = "numRows"
"""Parameter with the number of rows of a table or partition; Hive and Spark read it, too."""

KEEP = 20
"""Number of versions that a table records."""

LIMITS = TypeLimits(
    types={
        "timestamp_ntz": "a Hive table has no such type, and other engines would read other values or none: cast it in the query "
        "to timestamp, date or string, and drop a table that has it already, or use a table of format iceberg"
    },
    signs=UNNAMED_SIGNS,
)
"""Types and characters that the metastore cannot represent, so that Spark and others could not read the columns."""

ALL = -1
"""Requests all partitions in one call."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit in progress: its version, and the guard partition that exists as long as the commit may succeed.

    ``count`` is the number of partitions it changes, which determines its timeout. A compaction has version 0.
    """

    version: Version
    columns: tuple[Column, ...]
    comment: str | None
    guard: tuple[str, ...]
    count: int


def load(metastore: Metastore, path: ObjectPath) -> Table | None:
    """Load a table; ``None`` if it does not exist.

    :raises CatalogUnavailableError: if the metastore cannot be reached.
    """
    try:
        return metastore.ask("get_table", path.database, path.name)
    except NoSuchObjectException:
        return None


def versions(table: Table | None) -> list[Version]:
    """Return the recorded versions of a table, oldest first."""
    parameters = (table.parameters or {}) if table is not None else {}
    numbers = {int(key[len(VERSION) :].split(".")[0]) for key in parameters if key.startswith(VERSION)}
    texts = (joined_parameter(parameters, f"{VERSION}{number}") for number in sorted(numbers))
    return [from_plain(Version, json.loads(text)) for text in texts if text is not None]


def pending(table: Table | None) -> Pending | None:
    """Return the commit in progress."""
    text = joined_parameter((table.parameters or {}), PENDING) if table is not None else None
    return from_plain(Pending, json.loads(text)) if text is not None else None


def find(table: Table | None, token: str) -> Version | None:
    """Return the version committed with a token, if the table records it."""
    return next((version for version in versions(table) if version.token == token), None)


def revision(table: Table) -> str | None:
    """Return the revision, for compare-and-swap."""
    return (table.parameters or {}).get(REVISION)


def identity(table: Table) -> str | None:
    """Return the id of a table; ``None`` if this release has not changed it yet."""
    return (table.parameters or {}).get(IDENTITY)


def root(table: Table) -> str:
    """Return the folder of a table, which contains all its versions."""
    parameters = table.parameters or {}
    return file_uri(parameters.get(LOCATION) or table.sd.location).rstrip("/")


def stage_of(root: str, token: str) -> str:
    """Return the stage folder of a token in the folder of its table."""
    return f"{root}/{VERSIONS}/{quote(token, safe='')}"


def data_of(stage: str) -> str:
    """Return the data folder of a stage, the location of committed tables or partitions."""
    return f"{stage}/data"


def is_read(one: Table | Partition, stage: str) -> bool:
    """Return whether the location of a table or partition is in the data folder of a stage."""
    return is_at(one.sd.location, data_of(stage)) or is_below(one.sd.location, data_of(stage))


def is_of(table: Table, one: Table | Partition, token: str) -> bool:
    """Return whether a token's commit wrote or emptied a table or partition."""
    stage = stage_of(root(table), token)
    was_emptied = (one.parameters or {}).get(TOKEN) == token and left_in(table, one.sd.location) == stage
    return is_read(one, stage) or was_emptied


def writer_of(table: Table, one: Table | Partition) -> str | None:
    """Return the token of the version that wrote the rows of a table or partition, by location; ``None`` for other files.

    For a compaction without a record, or a commit that has not filled the partition yet, it is the token of these.
    """
    folder = f"{root(table)}/{VERSIONS}/"
    if not is_below(one.sd.location, folder.rstrip("/")):
        return None
    token = unquote(file_uri(one.sd.location)[len(folder) :].partition("/")[0])
    same = SameRows.read_in(one.parameters)
    return same.of if same is not None and same.token == token else token


def torn(table: Table, parts: Iterable[Table | Partition]) -> list[str]:
    """Return locations that do not match the parameters: the metastore reads both with separate statements.

    :param parts: partitions of the table, or the table itself if it is unpartitioned.
    """
    return [one.sd.location for one in parts if one.sd.location and not _is_whole(table, one)]


def _is_whole(table: Table, one: Table | Partition) -> bool:
    parameters = one.parameters or {}
    token = parameters.get(SNAPSHOT if one is table else TOKEN)
    if token is None:
        return left_in(table, one.sd.location) is not None or not is_below(one.sd.location, f"{root(table)}/{VERSIONS}")
    stage = stage_of(root(table), same.token if (same := SameRows.read_in(parameters)) and same.of == token else token)
    return is_read(one, stage) if one is table or ROWS in parameters else is_at(one.sd.location, f"{stage}/{EMPTY}")


def renew(table: Table) -> None:
    """Set a new revision, so that changes based on the old one fail."""
    known = identity(table) or uuid4().hex
    table.parameters = {**(table.parameters or {}), REVISION: uuid4().hex, IDENTITY: known, LOCATION: root(table)}


def set_pending(table: Table, commit: Pending | None) -> None:
    """Record the commit in progress."""
    others = {key: value for key, value in table.parameters.items() if not _is_of(PENDING, key)}
    table.parameters = {**others, **(split_parameter(PENDING, json.dumps(to_plain(commit))) if commit else {})}
    renew(table)


def add_version(table: Table, version: Version, columns: Sequence[Column], comment: str | None) -> None:
    """Record a version as the current one, and remove the oldest versions."""
    keys = partition_keys_of(table)
    if not has_columns(table, columns):
        set_columns(table, columns, keys)
    oldest = version.number - KEEP
    forgotten = {key for key in table.parameters if key.startswith(VERSION) and int(key[len(VERSION) :].split(".")[0]) <= oldest}
    table.parameters = {
        **{key: value for key, value in table.parameters.items() if key not in forgotten and key not in _STATISTICS},
        **split_parameter(f"{VERSION}{version.number}", json.dumps(to_plain(version), sort_keys=True)),
        SNAPSHOT: version.snapshot,
    }
    if comment is not None:
        table.parameters["comment"] = comment
    set_pending(table, None)


def next_version(table: Table, token: str, request: CommitRequest, lost: Version | None) -> Version:
    """Return the version that a commit with this token creates.

    :param lost: the last version if it was undone; number and data timestamp continue from it.
    """
    last = next(reversed(versions(table)), None)
    return Version(
        number=next_number(table, lost),
        token=token,
        snapshot=token,
        data_timestamp=fresh_until(fresh_until(request.data_timestamp, last), lost),
        committed_at=datetime.now(UTC),
        sources=dict(request.sources),
        partitions=recorded(request.partitions),
    )


def next_number(table: Table, lost: Version | None) -> int:
    """Return the number after that of the last version."""
    return max((version.number for version in (*versions(table), *([lost] if lost else []))), default=0) + 1


def layout(metastore: Metastore, table: Table) -> TableLayout | None:
    """Return the layout that the next refresh has to match, partition keys last as in Hive; ``None`` before the first commit."""
    keys = partition_keys_of(table)
    columns = tuple(columns_of(table))
    if len(columns) <= len(keys) and not versions(table):
        return None
    rebuild, limit = _rebuild(metastore, keys)
    return TableLayout(columns, keys, keys_last=True, rebuild=rebuild, limit=limit)


def _rebuild(metastore: Metastore, keys: Sequence[str]) -> tuple[Rebuild, str]:
    """Return what a full refresh can change atomically, and why not more: columns and partitions need separate calls."""
    if keys:
        return Rebuild.NOTHING, "The metastore cannot change the columns or keys of a table with partitions in one step."
    if metastore.lets_types_change():
        return Rebuild.COLUMNS, "The metastore cannot give a table partition keys in one step."
    return Rebuild.NAMES, f"This metastore keeps the type of the column at each place unless {TYPES_STAY} is false."


def evolved(metastore: Metastore, table: Table, request: CommitRequest) -> tuple[Column, ...]:
    """Return the columns of the table after a commit, in the order of its :func:`layout`."""
    returned = request.result.columns
    LIMITS.check(returned)
    present = layout(metastore, table)
    if present is None:
        return tuple(chain(*parted(returned, request.partition_keys)))
    return present.evolved(returned, request.rebuild)


def partition(table: Table, values: Sequence[str], location: str, **parameters: str) -> Partition:
    """Return a partition with the storage of its table at a location."""
    made = Partition(list(values), table.dbName, table.tableName, createTime=0, lastAccessTime=0)
    made.sd = table.sd.__class__(**{name: getattr(table.sd, name) for name in _DESCRIPTOR})
    made.sd.location = location
    made.parameters = parameters
    return made


def last_change(table: Table) -> str:
    """Describe the time of the last change of a table, and its author if recorded."""
    by = (table.parameters or {}).get("last_modified_by")
    return f"it was altered at {changed_at(table).isoformat()}{f' by {by}' if by else ''}"


def changed_at(one: Table | Partition) -> datetime:
    """Return when the metastore last changed a table or partition, in seconds; 1970 if unknown."""
    return datetime.fromtimestamp(int((one.parameters or {}).get("transient_lastDdlTime") or 0), UTC)


def number_of(one: Table | Partition) -> int:
    """Return the number of the version that altered a table or partition; 0 if unknown."""
    return int((one.parameters or {}).get(NUMBER) or 0)


def is_below(location: str | None, folder: str) -> bool:
    """Return whether a metastore location is below the folder."""
    return location is not None and file_uri(location).startswith(f"{folder}/")


def is_at(location: str | None, folder: str) -> bool:
    """Return whether a metastore location is the folder."""
    return location is not None and file_uri(location).rstrip("/") == folder


def left_by(table: Table, one: Partition) -> str | None:
    """Return the stage whose commit left a partition without rows, unless another engine restored that state.

    A successful commit marks the partitions that it emptied, and those that it added refer to rows.
    """
    stage = left_in(table, one.sd.location)
    parameters = one.parameters or {}
    if stage is None or TOKEN in parameters or GUARD in parameters:
        return stage
    return None if any(stage == stage_of(root(table), version.token) for version in versions(table)) else stage


def left_in(table: Table, location: str | None) -> str | None:
    """Return the stage whose commit left a partition without rows at a location, if any."""
    folder = file_uri(location or "").rstrip("/")
    stage = folder.removesuffix(f"/{EMPTY}")
    return stage if stage != folder and stage.rpartition("/")[0] == f"{root(table)}/{VERSIONS}" else None


_STATISTICS = ("numRows", "totalSize", "numFiles", "rawDataSize", "COLUMN_STATS_ACCURATE", COMPACTION)
"""Parameters about rows, replaced by a commit."""

_DESCRIPTOR = (
    *("cols", "inputFormat", "outputFormat", "compressed", "numBuckets", "serdeInfo", "bucketCols", "sortCols", "parameters"),
    "skewedInfo",
)


def _is_of(key: str, name: str) -> bool:
    return name == key or name.startswith(f"{key}.")
