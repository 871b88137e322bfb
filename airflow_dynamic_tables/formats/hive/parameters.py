"""Looking at Hive tables: their versions, the commit that is under way, where everything lies.

All of it stands in parameters of the table::

    dynamic-tables.revision      new with every change; what compare-and-swap compares (the catalog changes it, too)
    dynamic-tables.id            which table this is, whatever it is called and wherever it is known
    dynamic-tables.location      the folder of the table, which stays the same while versions come and go
    dynamic-tables.snapshot      the token of the current version
    dynamic-tables.version.<n>   what commit n recorded; the newest ones are kept
    dynamic-tables.pending       the commit that is under way, whoever makes it
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
    columns_of,
    file_uri,
    has_columns,
    joined_parameter,
    partition_keys_of,
    set_columns,
    split_parameter,
)
from airflow_dynamic_tables.clients.metastore.types import UNNAMED_SIGNS
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.tables.schema import Column, Rebuild, TableLayout, parted
from airflow_dynamic_tables.core.tables.type_limits import TypeLimits
from airflow_dynamic_tables.core.tables.versions import Version, recorded
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import COMPACTION, NUMBER, TOKEN, fresh_until
from airflow_dynamic_tables.formats.fingerprints import SameRows

LOCATION = "dynamic-tables.location"
VERSION = f"{NUMBER}."
PENDING = "dynamic-tables.pending"

VERSIONS = "_versions"
"""Folder of all stages below that of the table: hidden, because engines may list the table's own folder."""

EMPTY = "empty"
"""Folder in a stage where the partitions are that have no rows while it is committed."""

GUARD = "dynamic-tables.guard"
"""Parameter of a partition that is there for a commit, not for rows."""

ROWS = "numRows"
"""Parameter of a table or partition that says how many rows it has; Hive and Spark read it, too."""

KEEP = 20
"""How many versions a table remembers."""

LIMITS = TypeLimits(
    types={
        "timestamp_ntz": "a Hive table has no such type, and other engines would read other values or none: cast it in the query "
        "to timestamp, date or string, and drop a table that has it already, or use a table of format iceberg"
    },
    signs=UNNAMED_SIGNS,
)
"""What the metastore cannot say of a column, so that Spark and others would not read what was written."""

ALL = -1
"""Partitions asked for in one call: however many there are."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A commit that is under way: the version it makes, and the partition that is there as long as it may still land.

    ``count`` is how many partitions it changes, which says how long it may take. The version of a compaction, none, is 0.
    """

    version: Version
    columns: tuple[Column, ...]
    comment: str | None
    guard: tuple[str, ...]
    count: int


def load(metastore: Metastore, path: ObjectPath) -> Table | None:
    """A table as it is now; ``None`` when there is none.

    :raises CatalogUnavailableError: when the metastore cannot be reached.
    """
    try:
        return metastore.ask("get_table", path.database, path.name)
    except NoSuchObjectException:
        return None


def versions(table: Table | None) -> list[Version]:
    """The versions that a table remembers, oldest first."""
    parameters = (table.parameters or {}) if table is not None else {}
    numbers = {int(key[len(VERSION) :].split(".")[0]) for key in parameters if key.startswith(VERSION)}
    texts = (joined_parameter(parameters, f"{VERSION}{number}") for number in sorted(numbers))
    return [from_plain(Version, json.loads(text)) for text in texts if text is not None]


def pending(table: Table | None) -> Pending | None:
    """The commit that is under way."""
    text = joined_parameter((table.parameters or {}), PENDING) if table is not None else None
    return from_plain(Pending, json.loads(text)) if text is not None else None


def find(table: Table | None, token: str) -> Version | None:
    """The version that a token's commit made, if the table remembers it."""
    return next((version for version in versions(table) if version.token == token), None)


def revision(table: Table) -> str | None:
    """What compare-and-swap compares."""
    return (table.parameters or {}).get(REVISION)


def identity(table: Table) -> str | None:
    """Which table this is; ``None`` when nothing of this release has changed it yet."""
    return (table.parameters or {}).get(IDENTITY)


def root(table: Table) -> str:
    """The folder of a table, below which all its versions are."""
    parameters = table.parameters or {}
    return file_uri(parameters.get(LOCATION) or table.sd.location).rstrip("/")


def stage_of(root: str, token: str) -> str:
    """The folder of a token's stage in the folder of its table."""
    return f"{root}/{VERSIONS}/{quote(token, safe='')}"


def data_of(stage: str) -> str:
    """Where the rows of a stage are; a partition or a table leads there, or into it, from its commit on."""
    return f"{stage}/data"


def is_read(one: Table | Partition, stage: str) -> bool:
    """Whether a table or partition leads to rows of a stage."""
    return is_at(one.sd.location, data_of(stage)) or is_below(one.sd.location, data_of(stage))


def is_of(table: Table, one: Table | Partition, token: str) -> bool:
    """Whether the commit of a token changed a table or partition: it leads to its rows, or was emptied by it."""
    stage = stage_of(root(table), token)
    was_emptied = (one.parameters or {}).get(TOKEN) == token and left_in(table, one.sd.location) == stage
    return is_read(one, stage) or was_emptied


def writer_of(table: Table, one: Table | Partition) -> str | None:
    """The token of the version whose rows a table or partition leads to, by its location; ``None`` for files of others.

    Of a compaction without a note, and of a commit that has not filled the partition yet, it is the token of that one.
    """
    folder = f"{root(table)}/{VERSIONS}/"
    if not is_below(one.sd.location, folder.rstrip("/")):
        return None
    token = unquote(file_uri(one.sd.location)[len(folder) :].partition("/")[0])
    same = SameRows.read_in(one.parameters)
    return same.of if same is not None and same.token == token else token


def torn(table: Table, parts: Iterable[Table | Partition]) -> list[str]:
    """Locations whose parameters tell of another commit: the metastore reads the two by two statements, each of its own moment.

    :param parts: partitions of the table, or itself when it has none.
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
    """Give a table a new revision, so that whoever read the old one can no longer change it."""
    known = identity(table) or uuid4().hex
    table.parameters = {**(table.parameters or {}), REVISION: uuid4().hex, IDENTITY: known, LOCATION: root(table)}


def set_pending(table: Table, commit: Pending | None) -> None:
    """Say which commit is under way."""
    others = {key: value for key, value in table.parameters.items() if not _is_of(PENDING, key)}
    table.parameters = {**others, **(split_parameter(PENDING, json.dumps(to_plain(commit))) if commit else {})}
    renew(table)


def add_version(table: Table, version: Version, columns: Sequence[Column], comment: str | None) -> None:
    """Record a version as the current one; the oldest ones are forgotten."""
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
    """The version that a commit of that token makes of a table.

    :param lost: the last version, when the table does not know it any more; number and data timestamp go on from it.
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
    """The number after that of the last version."""
    return max((version.number for version in (*versions(table), *([lost] if lost else []))), default=0) + 1


def layout(metastore: Metastore, table: Table) -> TableLayout | None:
    """What a refresh has to fit, partition keys last, as Hive has them; ``None`` before the first commit."""
    keys = partition_keys_of(table)
    columns = tuple(columns_of(table))
    if len(columns) <= len(keys) and not versions(table):
        return None
    rebuild, limit = _rebuild(metastore, keys)
    return TableLayout(columns, keys, keys_last=True, rebuild=rebuild, limit=limit)


def _rebuild(metastore: Metastore, keys: Sequence[str]) -> tuple[Rebuild, str]:
    """What a full refresh can change in one step, and why not all: columns and partitions are altered by two calls."""
    if keys:
        return Rebuild.NOTHING, "The metastore cannot change the columns or keys of a table with partitions in one step."
    if metastore.lets_types_change():
        return Rebuild.COLUMNS, "The metastore cannot give a table partition keys in one step."
    return Rebuild.NAMES, f"This metastore keeps the type of the column at each place unless {TYPES_STAY} is false."


def evolved(metastore: Metastore, table: Table, request: CommitRequest) -> tuple[Column, ...]:
    """The table's columns after a commit, as its :func:`layout` says."""
    returned = request.result.columns
    LIMITS.check(returned)
    present = layout(metastore, table)
    if present is None:
        return tuple(chain(*parted(returned, request.partition_keys)))
    return present.evolved(returned, request.rebuild)


def partition(table: Table, values: Sequence[str], location: str, **parameters: str) -> Partition:
    """A partition as the metastore is to have it: stored as its table is, at that location."""
    made = Partition(list(values), table.dbName, table.tableName, createTime=0, lastAccessTime=0)
    made.sd = table.sd.__class__(**{name: getattr(table.sd, name) for name in _DESCRIPTOR})
    made.sd.location = location
    made.parameters = parameters
    return made


def last_change(table: Table) -> str:
    """What a metastore knows of the last change of a table: when it was, and whose if it says so."""
    by = (table.parameters or {}).get("last_modified_by")
    return f"it was altered at {changed_at(table).isoformat()}{f' by {by}' if by else ''}"


def changed_at(one: Table | Partition) -> datetime:
    """When a metastore changed a table or partition last, to the second; 1970 when it does not know."""
    return datetime.fromtimestamp(int((one.parameters or {}).get("transient_lastDdlTime") or 0), UTC)


def number_of(one: Table | Partition) -> int:
    """The number of the version that altered a table or partition; 0 when nobody knows it any more."""
    return int((one.parameters or {}).get(NUMBER) or 0)


def is_below(location: str | None, folder: str) -> bool:
    """Whether a location of the metastore is in that folder."""
    return location is not None and file_uri(location).startswith(f"{folder}/")


def is_at(location: str | None, folder: str) -> bool:
    """Whether a location of the metastore is that folder."""
    return location is not None and file_uri(location).rstrip("/") == folder


def left_by(table: Table, one: Partition) -> str | None:
    """The stage whose commit left a partition without rows, if one did and no other engine put it back so.

    A commit that landed has marked what it emptied, and what it added leads to rows.
    """
    stage = left_in(table, one.sd.location)
    parameters = one.parameters or {}
    if stage is None or TOKEN in parameters or GUARD in parameters:
        return stage
    return None if any(stage == stage_of(root(table), version.token) for version in versions(table)) else stage


def left_in(table: Table, location: str | None) -> str | None:
    """The stage whose commit left a partition without rows at that location, if one did."""
    folder = file_uri(location or "").rstrip("/")
    stage = folder.removesuffix(f"/{EMPTY}")
    return stage if stage != folder and stage.rpartition("/")[0] == f"{root(table)}/{VERSIONS}" else None


_STATISTICS = ("numRows", "totalSize", "numFiles", "rawDataSize", "COLUMN_STATS_ACCURATE", COMPACTION)
"""Parameters about rows that a commit replaces."""

_DESCRIPTOR = (
    *("cols", "inputFormat", "outputFormat", "compressed", "numBuckets", "serdeInfo", "bucketCols", "sortCols", "parameters"),
    "skewedInfo",
)


def _is_of(key: str, name: str) -> bool:
    return name == key or name.startswith(f"{key}.")
