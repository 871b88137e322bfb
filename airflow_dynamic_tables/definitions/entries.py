"""Declared entries before they are built: data as written, source position, defaults, and the expanded query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.core.formats import DEFAULT_FORMAT, VIEW, CatalogFormats
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule import FRESHNESS_THRESHOLD, Freshness
from airflow_dynamic_tables.definitions.declarations.settings import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration, ViewDeclaration
from airflow_dynamic_tables.definitions.queries.naming import Edit
from airflow_dynamic_tables.definitions.queries.text import Analysis, Reference
from airflow_dynamic_tables.yaml_files.documents import Document, Location, line_and_column


@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query, and its position: in a YAML document or in a file of its own."""

    text: str
    document: Document
    location: Location
    file: Path | None = None

    @property
    def path(self) -> Path:
        """The file that contains it."""
        return self.file or self.document.path

    def mistake(self, offset: int, message: str) -> Mistake:
        """Return a mistake at a character offset of the query."""
        if self.file is not None:
            return Mistake(self.file, *line_and_column(self.text, offset), message)
        return self.document.text_mistake(self.location, offset, message)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of the entries of a file: those of its folders and its own, merged, without the invalid keys in ``dropped``.

    ``broken`` is the nearest file whose defaults have mistakes.
    """

    declaration: DefaultsDeclaration = field(default_factory=DefaultsDeclaration)
    dropped: frozenset[str] = frozenset()
    broken: Path | None = None

    def below(self, farther: Defaults) -> Defaults:
        """Merge with defaults of an outer level; these take precedence."""
        declaration = self.declaration.over(farther.declaration)
        return Defaults(declaration, self.dropped | farther.dropped, self.broken or farther.broken)

    @property
    def tell_names(self) -> bool:
        """Whether short names can be resolved; false when an invalid key may have been intended for that."""
        return self.dropped <= set(DefaultsDeclaration.model_fields) - {"catalog", "database"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table, view or source as declared, without the invalid keys in ``dropped``.

    ``sound`` is false when the entry already has mistakes. ``root`` is the file or folder of all definitions. Tables with a
    freshness below ``threshold`` and no explicit mode are refreshed continuously. ``formats`` are the table formats of its
    catalog; ``None`` when they are unknown.
    """

    identifier: TableIdentifier
    declaration: TableDeclaration | ViewDeclaration | SourceDeclaration
    defaults: DefaultsDeclaration
    scope: tuple[str, str]
    document: Document
    location: Location
    query: QueryText | None
    sound: bool
    dropped: frozenset[str] = frozenset()
    root: Path = Path()
    threshold: Freshness = FRESHNESS_THRESHOLD
    formats: CatalogFormats | None = None

    @property
    def file(self) -> str:
        """The display path of its file, relative to the parent of the definitions folder: ``definitions/sales/orders.yaml``."""
        path, above = self.document.path.absolute(), self.root.absolute().parent
        return path.relative_to(above).as_posix() if path.is_relative_to(above) else path.name

    @property
    def may_have_watermark(self) -> bool:
        """Whether it is a source whose partitions define a watermark; a view may be one, which only its catalog knows."""
        if not isinstance(self.declaration, SourceDeclaration):
            return False
        return self.declaration.watermark == "source" or self.declaration.format == VIEW or "watermark" in self.dropped

    def mistake(self, key: str, message: str, *inner: str | int) -> Mistake:
        """Return a mistake in the value of one of the entry's keys."""
        return self.document.mistake((*self.location, key, *inner), message)


def format_of(entry: Entry, declared: TableDeclaration) -> str:
    """Return the format of a table, from its declaration or the defaults."""
    return declared.format or entry.defaults.format or DEFAULT_FORMAT


@dataclass(frozen=True, slots=True)
class Expansion:
    """A query with full names; ``origins`` maps each upstream table to the reference that reads it.

    ``edits`` are the changes to the text of the user. ``nested`` is the nesting depth of views in it, ``may_have_watermark``
    whether partitions of a source may define a watermark.
    """

    query: str
    analysis: Analysis
    origins: Mapping[TableIdentifier, Reference]
    edits: tuple[Edit, ...] = ()
    nested: int = 0
    may_have_watermark: bool = True
