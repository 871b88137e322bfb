"""Caches of definitions: the normalised form that a catalog stores with a table, and the cache folder of the loader.

The normalised form has the keys of the YAML, with every default applied, because the fields of ``DynamicTable`` may change
between releases. ``resolved`` holds what other definitions determine. It contains nothing that the YAML does not contain: no
connection is looked up. Unset keys are omitted, and secrets in Spark settings are masked.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.clients.spark_parser import Refusal, SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.expectations import Expectation, RowCount
from airflow_dynamic_tables.core.refresh.sources import AwaitedData, Source
from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from airflow_dynamic_tables.core.schedule import Freshness, RefreshMode
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.types import type_from_json
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION, Retention
from airflow_dynamic_tables.definitions.model import KEYS, NO_SCHEDULE, Conventions, Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import judge
from airflow_dynamic_tables.definitions.queries.text import Analysis, analyse
from airflow_dynamic_tables.exceptions import UnsupportedError
from airflow_dynamic_tables.redaction import without_secret_values

VERSION = 1
"""Version of the schema; a release reads its own version and every earlier one."""


def normalised(table: DynamicTable) -> dict[str, Any]:
    """Return the full declaration of a table as JSON data, with durations in seconds."""
    kept: dict[str, Any] = {"version": VERSION}
    for each in KEYS:
        value = getattr(table, each.field)
        if each.key.kept or value != each.default:
            plain = _KEPT[each.name](table) if each.name in _KEPT else to_plain(value)
            kept[each.name] = plain if each.key.part is None else _open(each.name, plain)
    return {key: value for key, value in {**kept, "resolved": _resolved(table)}.items() if value is not None}


_KEPT: Mapping[str, Callable[[DynamicTable], Any]] = {
    "name": lambda table: str(table.identifier),
    "freshness": lambda table: table.freshness.text,
    "schedule": lambda table: table.cron or (NO_SCHEDULE if table.on else None),
    "wait_for": lambda table: [_said(awaited) for awaited in table.wait_for],
    "versions_to_keep": lambda table: None if table.retention.thinned else table.retention.versions_to_keep,
    "version_max_age": lambda table: None if table.retention.thinned else to_plain(table.retention.version_max_age),
    "expectations": lambda table: [_said(expectation) for expectation in table.expectations],
    "row_counts": lambda table: [_said(bounds) for bounds in table.row_counts],
    "spark": lambda table: _said(_without_secrets(table.spark)),
}
"""Converters of the keys whose stored form differs from their field."""


def restored(declaration: Mapping[str, Any]) -> DynamicTable:
    """Return the table that was passed to :func:`normalised`, without its source position.

    :raises UnsupportedError: when a later release wrote it.
    """
    if declaration["version"] > VERSION:
        raise UnsupportedError(
            f"The definition of {declaration['name']} was written by a later release (schema version {declaration['version']})."
        )
    schedule = declaration.get("schedule")
    versions, seconds = declaration.get("versions_to_keep"), declaration.get("version_max_age")
    decided = {
        **_decided(declaration["resolved"], declaration["partitioned_by"]),
        "identifier": TableIdentifier.parse(declaration["name"]),
        "freshness": Freshness.parse(declaration["freshness"]),
        "cron": None if schedule == NO_SCHEDULE else schedule,
        "retention": DEFAULT_RETENTION
        if versions is None or seconds is None
        else Retention(versions, timedelta(seconds=seconds)),
    }
    said = {each.field: declaration[each.name] for each in KEYS if each.name in declaration}
    return from_plain(DynamicTable, {**said, **decided})


def _resolved(table: DynamicTable) -> dict[str, Any]:
    return {
        "query": table.expanded_query,
        "upstream": [str(identifier) for identifier in table.upstream],
        "refresh_mode": table.mode.value,
        "reason": table.mode_reason,
        "formatters": dict(table.formatters),
    }


def _decided(resolved: Mapping[str, Any], partition_keys: Sequence[str]) -> dict[str, Any]:
    """Return the fields that :func:`_resolved` was computed from."""
    patterns = resolved["formatters"]
    return {
        "expanded_query": resolved["query"],
        "upstream": tuple(TableIdentifier.parse(name) for name in resolved["upstream"]),
        "mode": RefreshMode(resolved["refresh_mode"]),
        "mode_reason": resolved["reason"],
        # A catalog may store keys in any order, but date patterns follow the order of the partition keys.
        "formatters": {key: patterns[key] for key in partition_keys if key in patterns},
    }


def _without_secrets(settings: SparkSettings) -> SparkSettings:
    """Mask secrets, because everyone with access to the catalog (every user of a metastore) can read the declaration."""
    conf = without_secret_values(settings.conf)
    return replace(settings, conf=conf, env_vars=without_secret_values(settings.env_vars))


def _open(name: str, value: Any) -> Any:
    """Return plain data without secrets, which arguments of notifiers may contain."""
    if isinstance(value, dict):
        return {key: _open(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_open(name, item) for item in value]
    return without_secret_values({name: value})[name] if isinstance(value, str) else value


def _said(value: AwaitedData | Expectation | RowCount | SparkSettings) -> dict[str, Any]:
    return {name: content for name, content in to_plain(value).items() if content not in (None, [], {})}


# A recently modified file may change again within the resolution of its modification time.
_SETTLED = timedelta(seconds=2)
_KEPT_SECONDS = 30 * 86_400

_LOOK_SECONDS = 86_400
"""Interval of the cleanup: it takes a second in a cache of a hundred thousand trees."""

_Stamp = list[Any]
Loaded = tuple[Definitions, tuple[Mistake, ...]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a definitions path in their current state; ``stamps`` detect changes.

    ``conventions`` are those of the installation. ``variables`` are the environment variables read with the files, once known.
    ``judge`` is the version of the Spark that decides which queries are valid, empty without one.
    """

    path: Path
    files: tuple[Path, ...]
    stamps: tuple[_Stamp, ...]
    conventions: Conventions
    variables: Mapping[str, str | None] = field(default_factory=dict)
    judge: str = ""

    @classmethod
    def scan(cls, path: Path, files: Iterable[Path], conventions: Conventions, judge: str = "") -> Tree:
        """Stat every file, without reading any."""
        files = tuple(files)
        return cls(path, files, tuple(map(_stamp, map(str, files))), conventions, judge=judge)

    def including(self, files: Iterable[Path], variables: Mapping[str, str | None]) -> Tree:
        """Return a copy with additional files and environment variables that determine the result."""
        more = tuple(files)
        stamps = self.stamps + tuple(map(_stamp, map(str, more)))
        return replace(self, files=self.files + more, stamps=stamps, variables=variables)


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - a thousand Path objects would cost more than all the rest
    except OSError:
        return [path, -1, 0, 0, 0]
    return [path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


@dataclass(frozen=True, slots=True)
class ParserAnswer:
    """Spark's answer about a query; empty when it parses."""

    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Returned:
    """The columns that a query returns, or why Spark refuses it; neither, when Spark needs a session to tell.

    ``collations`` are those of columns, by name; they are not stored in a table.
    """

    columns: tuple[Column, ...] = ()
    collations: Mapping[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None


class Cache:
    """A folder of cached results; ``None`` disables the cache.

    :param settled: minimum age of the last modification of a file for its cached result to be trusted.
    """

    def __init__(self, folder: Path | None, settled: timedelta = _SETTLED) -> None:
        self._folder = folder
        self._settled = settled

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> Cache:
        """Return the cache in the folder that ``DYNAMIC_TABLES_CACHE`` names, by default in the user's cache folder.

        An empty value disables the cache.
        """
        named = environ.get("DYNAMIC_TABLES_CACHE")
        if named is not None:
            return cls(Path(named) if named else None)
        with contextlib.suppress(RuntimeError):
            return cls(Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-dynamic-tables")
        return cls(None)

    def analyse(self, query: str) -> Analysis:
        """Return the analysis of a query, computed at most once for the same text."""
        key = _digest(_versions(), query)
        with contextlib.suppress(OSError, ValueError):
            return from_plain(Analysis, json.loads(self._read(f"queries/{key}.json")))
        analysis = analyse(query)
        self._write(f"queries/{key}.json", json.dumps(to_plain(analysis)))
        return analysis

    def analyse_with(self, spark: SparkParser, query: str) -> Analysis:
        """As :meth:`analyse`, but Spark's parser decides what is valid.

        It is called at most once for the same text and version.
        """
        return judge(query, self.analyse(query), functools.partial(self._refusal, spark, query), spark.version)

    def _refusal(self, spark: SparkParser, query: str) -> Refusal | None:
        name = f"refusals/{_digest(_versions(), spark.version, query)}.json"
        with contextlib.suppress(OSError, ValueError):
            return from_plain(ParserAnswer, json.loads(self._read(name))).refusal
        refusal = spark.refusal(query)
        self._write(name, json.dumps(to_plain(ParserAnswer(refusal))))
        return refusal

    def returned(self, spark: SparkParser, query: str, settings: Mapping[str, str]) -> Returned:
        """Return the columns of a query according to Spark.

        It is called at most once for the same text, settings and version.
        """
        name = f"columns/{_digest(_versions(), spark.version, json.dumps(settings, sort_keys=True), query)}.json"
        with contextlib.suppress(OSError, ValueError):
            return from_plain(Returned, json.loads(self._read(name)))
        answer = spark.returned(query, settings)
        returned = Returned(refusal=answer) if isinstance(answer, Refusal) else _returned(answer)
        self._write(name, json.dumps(to_plain(returned)))
        return returned

    def load(self, tree: Tree) -> Loaded | None:
        """Return the result that :meth:`store` saved for exactly these files, if any."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            header, body = self._open(tree)
            if header is not None:
                lines = [json.loads(line) for line in body.splitlines()]
                tables = [from_plain(DynamicTable, line["table"]) for line in lines if "table" in line]
                sources = [from_plain(Source, line["source"]) for line in lines if "source" in line]
                mistakes = tuple(Mistake(Path(path), *rest) for path, *rest in header["mistakes"])
                return _definitions(tables, sources), mistakes
        return None

    def load_workflow(self, tree: Tree, workflow_id: str) -> Definitions | None:
        """Return the tables of a workflow and what they read from the cached result; empty when there are none."""
        return self._load_part(tree, lambda header: header["workflows"].get(workflow_id, []))

    def load_table(self, tree: Tree, name: str) -> Definitions | None:
        """Return the table of a full name and what it reads from the cached result; empty when there is none."""
        return self._load_part(tree, lambda header: [name] if name in header["tables"] else [])

    def _load_part(self, tree: Tree, names_in: Callable[[dict[str, Any]], list[str]]) -> Definitions | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            header, body = self._open(tree)
            if header is not None:
                places = sorted({(start, end) for name in names_in(header) for start, end in header["tables"][name]})
                lines = [json.loads(body[start:end]) for start, end in places]
                tables = [from_plain(DynamicTable, line["table"]) for line in lines if "table" in line]
                return _definitions(tables, [from_plain(Source, line["source"]) for line in lines if "source" in line])
        return None

    def store(self, tree: Tree, definitions: Definitions, mistakes: Iterable[Mistake]) -> None:
        """Store the result of reading those files."""
        lines: dict[TableIdentifier, bytes] = {}
        for table in definitions.tables.values():
            lines[table.identifier] = json.dumps({"table": _sparse(table)}).encode()
        for source in definitions.sources.values():
            lines[source.identifier] = json.dumps({"source": _sparse(source)}).encode()
        places: dict[TableIdentifier, tuple[int, int]] = {}
        position = 0
        for identifier, line in lines.items():
            places[identifier] = (position, position + len(line))
            position += len(line) + 1
        workflows: dict[str, list[str]] = {}
        for table in definitions.tables.values():
            workflows.setdefault(table.workflow_id, []).append(str(table.identifier))
        header = {
            "versions": _versions(),
            "written": time.time_ns(),
            "stamps": tree.stamps,
            "variables": tree.variables,
            "mistakes": [(str(item.path), item.line, item.column, item.message) for item in mistakes],
            "workflows": workflows,
            "tables": {
                str(table.identifier): [
                    places[identifier] for identifier in (table.identifier, *definitions.needed_by(table)) if identifier in places
                ]
                for table in definitions.tables.values()
            },
        }
        self._write(_tree_file(tree), json.dumps(header).encode() + b"\n" + b"\n".join(lines.values()))
        self._forget_old()

    def _open(self, tree: Tree) -> tuple[dict[str, Any] | None, bytes]:
        """Return the cached header and body; the header is ``None`` when any file changed."""
        first, _, body = self._read(_tree_file(tree)).partition(b"\n")
        header = json.loads(first)
        now = list(tree.stamps)
        now += [_stamp(stamp[0]) for stamp in header["stamps"][len(now) :]]
        newest = max((max(stamp[2], stamp[3]) for stamp in now), default=0)
        latest = header["written"] - self._settled.total_seconds() * 1e9
        if header["versions"] != _versions() or header["stamps"] != now or newest > latest:
            return None, b""
        if any(os.environ.get(name) != value for name, value in header["variables"].items()):
            return None, b""
        return header, body

    def _read(self, name: str) -> bytes:
        if self._folder is None:
            raise FileNotFoundError(name)
        return (self._folder / name).read_bytes()

    def _write(self, name: str, content: str | bytes) -> None:
        if self._folder is None:
            return
        path = self._folder / name
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            Path(temporary).replace(path)

    def _forget_old(self) -> None:
        """Once a day, remove entries not written for a month; those still in use are written again."""
        if self._folder is None:
            return
        looked = self._folder / "looked"
        now = time.time()
        with contextlib.suppress(OSError):
            if looked.exists() and abs(now - looked.stat().st_mtime) < _LOOK_SECONDS:
                return
            looked.touch(0o600)
            for file in self._folder.glob("*/*"):
                with contextlib.suppress(OSError):  # removed concurrently, or not a cache file
                    if now - file.stat().st_mtime > _KEPT_SECONDS:
                        file.unlink()


def _sparse(value: DynamicTable | Source) -> dict[str, Any]:
    """Return plain data without default values, which would take half of the time of reading a table."""
    default = {each.name: each.default if each.default_factory is MISSING else each.default_factory() for each in fields(value)}
    return {name: content for name, content in to_plain(value).items() if getattr(value, name) != default[name]}


def _returned(schema: str | None) -> Returned:
    """Return the columns of a schema in Spark's JSON; empty when it has types that only Spark supports."""
    fields = json.loads(schema)["fields"] if schema is not None else ()
    collations = {each["name"]: set(each["metadata"].get("__COLLATIONS", {}).values()) for each in fields}
    try:
        columns = tuple(Column(each["name"], str(type_from_json(each["type"])), each["nullable"]) for each in fields)
    except UnsupportedError:
        return Returned()
    return Returned(columns, {name: ", ".join(sorted(found)) for name, found in collations.items() if found})


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", errors="surrogatepass")).hexdigest()


@functools.cache
def _versions() -> str:
    """Return the versions of everything besides the files that determines a result: the installed package and sqlglot."""
    package = Path(__file__).parent.parent
    code = sorted(str(file) for folder in ("core", "definitions", "yaml_files") for file in (package / folder).rglob("*.py"))
    code.append(str(package / "redaction.py"))
    return _digest(version("sqlglot"), json.dumps([_stamp(file)[:3] for file in code]))


def _tree_file(tree: Tree) -> str:
    said = tree.conventions
    formats = repr(sorted(said.formats.items(), key=str))
    given = (*said.scope, repr(said.allowed), str(said.threshold), formats, repr(said.variables), tree.judge)
    return f"trees/{_digest(str(tree.path), str(tree.path.absolute()), *given)}.jsonl"


def _definitions(tables: Iterable[DynamicTable], sources: Iterable[Source]) -> Definitions:
    return Definitions({table.identifier: table for table in tables}, {source.identifier: source for source in sources})
