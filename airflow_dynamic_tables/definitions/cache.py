"""What was computed before, kept on disk as JSON: the analysis of a query by its content, the definitions of a tree of files.

The cache is never needed: when it is missing, old, corrupt or not writable, the answer is computed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airflow_dynamic_tables.clients.spark_parser import Refusal, SparkParser
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.plain import from_plain, to_plain
from airflow_dynamic_tables.core.refresh.sources import Source
from airflow_dynamic_tables.core.tables.schema import Column
from airflow_dynamic_tables.core.tables.type_parsing import type_from_json
from airflow_dynamic_tables.definitions.model import Conventions, Definitions, DynamicTable
from airflow_dynamic_tables.definitions.queries.judging import judge
from airflow_dynamic_tables.definitions.queries.text import Analysis, analyse
from airflow_dynamic_tables.exceptions import UnsupportedError

# A file that changed this shortly before it was read may have changed once more within the same tick of its clock.
_SETTLED = timedelta(seconds=2)
_KEPT_SECONDS = 30 * 86_400

_LOOK_SECONDS = 86_400
"""How long nobody looks for what is old again: a look costs a second where a hundred thousand trees were read."""

_Stamp = list[Any]
Loaded = tuple[Definitions, tuple[Mistake, ...]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of one definitions path as they are now; ``stamps`` tell whether one has changed.

    ``conventions`` are those of the installation. ``variables`` are those of the environment that were read with them, once they
    are known.
    """

    path: Path
    files: tuple[Path, ...]
    stamps: tuple[_Stamp, ...]
    conventions: Conventions
    variables: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def scan(cls, path: Path, files: Iterable[Path], conventions: Conventions) -> Tree:
        """Look at every file, without reading any."""
        files = tuple(files)
        return cls(path, files, tuple(map(_stamp, map(str, files))), conventions)

    def including(self, files: Iterable[Path], variables: Mapping[str, str | None]) -> Tree:
        """The same with more files, and the variables of the environment, that decide the result."""
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
class Answer:
    """What Spark said of a query: nothing, when it can parse it."""

    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Returned:
    """The columns that a query returns, or why Spark refuses it; neither, when Spark cannot tell without a session.

    ``collations`` are those of columns, by their names, which no table keeps.
    """

    columns: tuple[Column, ...] = ()
    collations: Mapping[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None


class Cache:
    """A folder of earlier results; ``None`` keeps nothing.

    :param settled: how long a file must not have changed before what was read from it is trusted.
    """

    def __init__(self, folder: Path | None, settled: timedelta = _SETTLED) -> None:
        self._folder = folder
        self._settled = settled

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> Cache:
        """The folder that ``DYNAMIC_TABLES_CACHE`` names (empty: none), else one below the user's cache folder."""
        named = environ.get("DYNAMIC_TABLES_CACHE")
        if named is not None:
            return cls(Path(named) if named else None)
        with contextlib.suppress(RuntimeError):
            return cls(Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-dynamic-tables")
        return cls(None)

    def analyse(self, query: str) -> Analysis:
        """The analysis of a query, computed at most once for the same text."""
        key = _digest(_versions(), query)
        with contextlib.suppress(OSError, ValueError):
            return from_plain(Analysis, json.loads(self._read(f"queries/{key}.json")))
        analysis = analyse(query)
        self._write(f"queries/{key}.json", json.dumps(to_plain(analysis)))
        return analysis

    def analyse_with(self, spark: SparkParser, query: str) -> Analysis:
        """As :meth:`analyse`, but Spark's own parser says what is SQL; asked at most once for the same text and version."""
        return judge(query, self.analyse(query), functools.partial(self._refusal, spark, query))

    def _refusal(self, spark: SparkParser, query: str) -> Refusal | None:
        name = f"refusals/{_digest(_versions(), spark.version, query)}.json"
        with contextlib.suppress(OSError, ValueError):
            return from_plain(Answer, json.loads(self._read(name))).refusal
        refusal = spark.refusal(query)
        self._write(name, json.dumps(to_plain(Answer(refusal))))
        return refusal

    def returned(self, spark: SparkParser, query: str, settings: Mapping[str, str]) -> Returned:
        """What Spark says that a query returns; asked at most once for the same text, settings and version."""
        name = f"columns/{_digest(_versions(), spark.version, json.dumps(settings, sort_keys=True), query)}.json"
        with contextlib.suppress(OSError, ValueError):
            return from_plain(Returned, json.loads(self._read(name)))
        answer = spark.returned(query, settings)
        returned = Returned(refusal=answer) if isinstance(answer, Refusal) else _returned(answer)
        self._write(name, json.dumps(to_plain(returned)))
        return returned

    def load(self, tree: Tree) -> Loaded | None:
        """What :meth:`store` kept for exactly these files, if anything."""
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
        """Of what :meth:`store` kept: the tables of that workflow and what they read; empty when there are none."""
        return self._load_part(tree, lambda header: header["workflows"].get(workflow_id, []))

    def load_table(self, tree: Tree, name: str) -> Definitions | None:
        """Of what :meth:`store` kept: the table of that full name and what it reads; empty when there is none."""
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
        """Keep the result of reading those files."""
        lines: dict[TableIdentifier, bytes] = {}
        for table in definitions.tables.values():
            lines[table.identifier] = json.dumps({"table": to_plain(table)}).encode()
        for source in definitions.sources.values():
            lines[source.identifier] = json.dumps({"source": to_plain(source)}).encode()
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
        """The kept header and body; no header when any file is not as it was."""
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
        """Once a day, remove what was not written for a month; what is still needed is written again."""
        if self._folder is None:
            return
        looked = self._folder / "looked"
        now = time.time()
        with contextlib.suppress(OSError):
            if looked.exists() and abs(now - looked.stat().st_mtime) < _LOOK_SECONDS:
                return
            looked.touch(0o600)
            for file in self._folder.glob("*/*"):
                with contextlib.suppress(OSError):  # somebody else removed it, or it is none of ours
                    if now - file.stat().st_mtime > _KEPT_SECONDS:
                        file.unlink()


def _returned(schema: str | None) -> Returned:
    """The columns of a schema in Spark's JSON; none of one with types that only Spark has."""
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
    """Everything besides the files that decides a result: the code that reads them, as installed, and sqlglot."""
    package = Path(__file__).parent.parent
    code = sorted(str(file) for folder in ("core", "definitions", "yaml_files") for file in (package / folder).rglob("*.py"))
    code.append(str(package / "redaction.py"))
    return _digest(version("sqlglot"), json.dumps([_stamp(file)[:3] for file in code]))


def _tree_file(tree: Tree) -> str:
    said = tree.conventions
    formats = repr(sorted(said.formats.items(), key=str))
    given = (*said.scope, repr(said.allowed), str(said.threshold), formats, repr(said.variables))
    return f"trees/{_digest(str(tree.path), str(tree.path.absolute()), *given)}.jsonl"


def _definitions(tables: Iterable[DynamicTable], sources: Iterable[Source]) -> Definitions:
    return Definitions({table.identifier: table for table in tables}, {source.identifier: source for source in sources})
