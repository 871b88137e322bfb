"""The formats of tables: their names, and what everybody may know of each; the registry in ``formats`` finds what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endless:
    """Sources whose rows come and come, so that only a stream reads them.

    They have these ``columns``. ``options`` are all that a definition may say, of which it ``needs`` some; ``presets`` hold
    unless it says otherwise. Of what ``forgets`` older rows a new stream has no more than is left; ``tuning`` are options that do
    not make a stream another one. Where the option ``address`` says which server has the rows, an Airflow connection may say so
    instead. ``package`` is what Spark needs for them, without its version; empty: it is built in.
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
    """One format: whether dynamic tables have it (``sink``), and tables that nobody here refreshes (``source``).

    ``file_format`` is Spark's name of the files that a refresh writes. Partition columns are in these files, too, with
    ``keys_in_files``; otherwise only the names of their folders have them. A source ``has_path`` when its definition says where
    it lies, and ``has_columns`` when its definition may say which ones; else its catalog knows. With ``has_history`` tables keep
    earlier versions whole, as many as their retention says. What is ``in_server`` has its rows in a database server, into which
    a refresh copies its files. A table that is ``placed_by_entry`` lies where its entry in the catalog says, in a folder that no
    other one has. Of a source that ``lists_partitions`` its catalog knows which ones there are; the rows of one that
    ``counts_rows`` can be counted without reading them. With ``hides_keys`` tables can be partitioned by what is computed of
    columns; with ``takes_streams`` rows can be added to them in one step. A source that ``takes_options`` may have those of
    Spark's reader, but ``options_of_others``, in lower case, and what to do instead. A source that is ``endless`` is none of
    tables.
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
        """Whether such a source is a folder of files and nothing else, which the definition says all of."""
        return self.has_path and self.has_columns

    @property
    def tells_news(self) -> bool:
        """Whether a stream hears what is new in such a source."""
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
"""Options of Spark's reader of servers that are not the definition's affair."""

_TICKS = Endless(("timestamp", "value"), ("rowsPerSecond", "numPartitions", "rampUpTime"))

_TOPIC = Endless(
    columns=("key", "value", "topic", "partition", "offset", "timestamp"),
    options=("kafka.bootstrap.servers", "subscribe", "startingOffsets", "maxOffsetsPerTrigger", "minPartitions"),
    needs=("subscribe",),
    presets={"startingOffsets": "earliest", "failOnDataLoss": "true"},  # Spark's own default leaves out what is there already
    tuning=("maxOffsetsPerTrigger", "minPartitions"),
    forgets=True,
    address="kafka.bootstrap.servers",
    package="org.apache.spark:spark-sql-kafka-0-10_2.13",
)

DEFAULT_FORMAT = "iceberg"
"""Format of a table that does not say."""

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
"""Every format by its name. Whoever adds one adds a line here and one to the registry of ``formats``."""


@dataclass(frozen=True, slots=True)
class CatalogFormats:
    """The formats that dynamic tables may have in catalogs of a ``type``; those of ``stepwise`` are not replaced in one step."""

    type: str
    atomic: tuple[str, ...]
    stepwise: tuple[str, ...] = ()

    def problem(self, catalog: str, table_format: str, atomicity: str) -> str | None:
        """Why a dynamic table of a format cannot be there, and what to do, without a full stop; ``None`` when it can."""
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
        """As :meth:`problem`, of a source that its catalog has to know."""
        traits = FORMATS[source_format]
        if traits.has_path or traits.endless or source_format in (VIEW, self.type, *self.atomic):
            return None
        return (
            f"catalog {catalog} is of type {self.type}, and has no tables of format {source_format}; name the catalog that does"
        )


def sink_formats() -> tuple[str, ...]:
    """Names of the formats that dynamic tables may have, the default one first."""
    return tuple(sorted(_names(lambda traits: traits.sink), key=lambda name: name != DEFAULT_FORMAT))


def source_formats() -> tuple[str, ...]:
    """Names of the formats that tables may have which nobody here refreshes."""
    return _names(lambda traits: traits.source)


def hiding_formats() -> tuple[str, ...]:
    """Names of the formats whose tables can be partitioned by what is computed of columns."""
    return _names(lambda traits: traits.hides_keys)


def streamed_formats() -> tuple[str, ...]:
    """Names of the formats to whose tables a stream can add rows, the default one first."""
    return tuple(name for name in sink_formats() if FORMATS[name].takes_streams)


def endless_format(name: str) -> Endless | None:
    """What sources of a format are when only a stream reads them; ``None`` when they are tables, or nobody here knows it."""
    traits = FORMATS.get(name)
    return traits.endless if traits is not None else None


def is_placed_by_entry(name: str) -> bool:
    """Whether tables of a format lie where their entries in the catalog say."""
    traits = FORMATS.get(name)
    return traits is not None and traits.placed_by_entry


def counted_formats() -> tuple[str, ...]:
    """Names of the formats of sources whose rows can be counted without reading them."""
    return _names(lambda traits: traits.counts_rows)


def _names(has_trait: Callable[[TableFormat], bool]) -> tuple[str, ...]:
    return tuple(name for name, traits in FORMATS.items() if has_trait(traits))
