"""Table formats and their properties; the registry in ``formats`` has their implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endless:
    """Unbounded sources, which only a stream can read.

    They have these ``columns``. ``options`` are all permitted options, of which those in ``needs`` are mandatory; ``presets`` are
    defaults. A source that ``forgets`` discards old rows, so that a new stream only gets the remaining ones; ``tuning`` are
    options that do not change a stream's identity. If the option ``address`` names the server, an Airflow connection may do so
    instead. ``package`` is Spark's connector without version; empty: it is built in.
    """

    columns: tuple[str, ...]
    options: tuple[str, ...]
    needs: tuple[str, ...] = ()
    presets: Mapping[str, str] = field(default_factory=dict)
    tuning: tuple[str, ...] = ()
    forgets: bool = False
    address: str = ""
    package: str = ""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """One format, for dynamic tables (``sink``) and for tables that are not refreshed by this package (``source``).

    ``file_format`` is Spark's format of the files that a refresh writes. With ``keys_in_files``, these files contain the
    partition columns; otherwise only their folder names do. A source ``has_path`` when its definition contains its location, and
    ``has_columns`` when its definition may declare columns; otherwise its catalog knows them. With ``has_history``, tables keep
    complete earlier versions as configured by their retention. Tables ``in_server`` have their rows in a database server, into
    which a refresh copies its files. A table that is ``placed_by_entry`` is located by its catalog entry, in a folder of its own.
    For a source that ``lists_partitions`` the catalog knows its partitions; rows of a source that ``counts_rows`` can be counted
    without reading them. With ``hides_keys``, tables can be partitioned by transforms of columns; with ``takes_streams``, rows
    can be appended atomically. A source that ``takes_options`` accepts those of Spark's reader, except ``options_of_others`` (in
    lower case, with the alternative). ``endless`` is set for sources that are not tables.
    """

    name: str
    sink: bool = False
    source: bool = False
    file_format: str = ""
    keys_in_files: bool = False
    has_path: bool = False
    has_columns: bool = True
    has_history: bool = False
    in_server: bool = False
    placed_by_entry: bool = False
    lists_partitions: bool = False
    counts_rows: bool = False
    takes_options: bool = True
    hides_keys: bool = False
    takes_streams: bool = False
    options_of_others: Mapping[str, str] = field(default_factory=dict)
    endless: Endless | None = None

    @property
    def is_folder(self) -> bool:
        """Return whether a source is just a folder of files, completely described by its definition."""
        return self.has_path and self.has_columns

    @property
    def tells_news(self) -> bool:
        """Return whether a stream can detect new rows of a source."""
        return self.has_path or self.lists_partitions or self.has_history or self.endless is not None


_LOGIN = "the catalog logs in; give its connection (conn-id) the login in catalogs.yaml"
_SNAPSHOT = "the refresh sets it, to read one snapshot; remove it"

_SERVER_OPTIONS = {
    "user": _LOGIN,
    "password": _LOGIN,
    "url": "the catalog knows the server; name it in catalogs.yaml",
    "driver": _SNAPSHOT,
    "dbtable": "the name of the source is that of the table, database.table; remove the option",
    "query": "write the query into the dynamic table, or make it a view of the database and name that",
    "preparequery": _SNAPSHOT,
    "sessioninitstatement": _SNAPSHOT,
}
"""Options of Spark's JDBC reader that a definition may not set."""

_TICKS = Endless(("timestamp", "value"), ("rowsPerSecond", "numPartitions", "rampUpTime"))

_TOPIC = Endless(
    columns=("key", "value", "topic", "partition", "offset", "timestamp"),
    options=("kafka.bootstrap.servers", "subscribe", "startingOffsets", "maxOffsetsPerTrigger", "minPartitions"),
    needs=("subscribe",),
    presets={"startingOffsets": "earliest", "failOnDataLoss": "true"},  # Spark's own default ignores existing rows
    tuning=("maxOffsetsPerTrigger", "minPartitions"),
    forgets=True,
    address="kafka.bootstrap.servers",
    package="org.apache.spark:spark-sql-kafka-0-10",
)

DEFAULT_FORMAT = "iceberg"
"""Default format of a table."""

VIEW = "view"
"""Format of a source that is a view of its catalog."""

FORMATS = {
    table_format.name: table_format
    for table_format in (
        TableFormat("parquet", sink=True, source=True, file_format="parquet", has_path=True, counts_rows=True),
        TableFormat("orc", sink=True, source=True, file_format="orc", has_path=True, counts_rows=True),
        TableFormat("csv", source=True, file_format="csv", has_path=True),
        TableFormat("json", source=True, file_format="json", has_path=True),
        TableFormat(
            DEFAULT_FORMAT,
            sink=True,
            source=True,
            file_format="parquet",
            keys_in_files=True,
            has_history=True,
            hides_keys=True,
            takes_streams=True,
        ),
        TableFormat("hive", source=True, has_columns=False, lists_partitions=True),
        TableFormat(
            "jdbc",
            sink=True,
            source=True,
            file_format="parquet",
            keys_in_files=True,
            in_server=True,
            counts_rows=True,
            options_of_others=_SERVER_OPTIONS,
        ),
        TableFormat("kafka", source=True, has_columns=False, endless=_TOPIC),
        TableFormat("rate", source=True, has_columns=False, endless=_TICKS),
        TableFormat(VIEW, source=True),
        TableFormat(
            "delta",
            sink=True,
            source=True,
            file_format="parquet",
            has_path=True,
            has_columns=False,
            has_history=True,
            placed_by_entry=True,
            counts_rows=True,
            takes_options=False,
            takes_streams=True,
        ),
    )
}
"""All formats by name. A new format requires an entry here and in the registry of ``formats``."""


@dataclass(frozen=True, slots=True)
class CatalogFormats:
    """The formats of dynamic tables in catalogs of a ``type``; commits of ``stepwise`` formats are not atomic."""

    type: str
    atomic: tuple[str, ...]
    stepwise: tuple[str, ...] = ()

    def problem(self, catalog: str, table_format: str, atomicity: str) -> str | None:
        """Return why a catalog cannot have dynamic tables of a format, with the remedy and no full stop; ``None`` when it can."""
        if table_format in self.atomic or (table_format in self.stepwise and atomicity == "none"):
            return None
        if table_format in self.stepwise:
            return (
                f"catalog {catalog} is of type {self.type}, which cannot replace {table_format} files in one step; use format: "
                f"{self.atomic[0]}, or accept with atomicity: none that readers may see a part of a refresh"
            )
        return (
            f"catalog {catalog} is of type {self.type}, whose dynamic tables are of format {' | '.join(self.atomic)}, not "
            f"{table_format}; write 'format: {self.atomic[0]}', or name another catalog"
        )

    def source_problem(self, catalog: str, source_format: str) -> str | None:
        """As :meth:`problem`, for a source that its catalog has to know."""
        traits = FORMATS[source_format]
        if traits.has_path or traits.endless or source_format in (VIEW, self.type, *self.atomic):
            return None
        return (
            f"catalog {catalog} is of type {self.type}, and has no tables of format {source_format}; name the catalog that does"
        )


def sink_formats() -> tuple[str, ...]:
    """Names of the formats of dynamic tables, the default one first."""
    return tuple(sorted(_names(lambda traits: traits.sink), key=lambda name: name != DEFAULT_FORMAT))


def source_formats() -> tuple[str, ...]:
    """Names of the formats of sources."""
    return _names(lambda traits: traits.source)


def hiding_formats() -> tuple[str, ...]:
    """Names of the formats with partition transforms."""
    return _names(lambda traits: traits.hides_keys)


def streamed_formats() -> tuple[str, ...]:
    """Names of the formats to which a stream can append rows, the default one first."""
    return tuple(name for name in sink_formats() if FORMATS[name].takes_streams)


def endless_format(name: str) -> Endless | None:
    """The properties of an unbounded format; ``None`` when the format is one of tables, or unknown."""
    traits = FORMATS.get(name)
    return traits.endless if traits is not None else None


def is_placed_by_entry(name: str) -> bool:
    """Return whether tables of a format are located by their catalog entries."""
    traits = FORMATS.get(name)
    return traits is not None and traits.placed_by_entry


def counted_formats() -> tuple[str, ...]:
    """Names of the source formats whose rows can be counted without reading them."""
    return _names(lambda traits: traits.counts_rows)


def _names(has_trait: Callable[[TableFormat], bool]) -> tuple[str, ...]:
    return tuple(name for name, traits in FORMATS.items() if has_trait(traits))
