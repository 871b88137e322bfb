"""One declared entry: what the user wrote, where, and how its query reads with every name in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.schedule.freshness import Freshness
from airflow_dynamic_tables.core.schedule.refresh_mode import FRESHNESS_THRESHOLD
from airflow_dynamic_tables.core.tables.formats import DEFAULT_FORMAT, VIEW, CatalogFormats
from airflow_dynamic_tables.definitions.declarations.defaults import DefaultsDeclaration
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import TableDeclaration, ViewDeclaration
from airflow_dynamic_tables.definitions.queries.naming import Edit
from airflow_dynamic_tables.definitions.queries.text import Analysis, Reference
from airflow_dynamic_tables.yaml_files.documents import Document, Location
from airflow_dynamic_tables.yaml_files.texts import line_and_column


@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query, and where it stands: in a YAML document or in a file of its own."""

    text: str
    document: Document
    location: Location
    file: Path | None = None

    @property
    def path(self) -> Path:
        """The file that it stands in."""
        return self.file or self.document.path

    def mistake(self, offset: int, message: str) -> Mistake:
        """A mistake at a character of the query."""
        if self.file is not None:
            return Mistake(self.file, *line_and_column(self.text, offset), message)
        return self.document.text_mistake(self.location, offset, message)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for the entries of a file: what its folders say and what it says itself, merged, without the keys in
    ``dropped``, which are wrong. ``broken`` is the nearest file whose defaults have mistakes.
    """

    declaration: DefaultsDeclaration = field(default_factory=DefaultsDeclaration)
    dropped: frozenset[str] = frozenset()
    broken: Path | None = None

    def below(self, farther: Defaults) -> Defaults:
        """Both together; these are the nearer ones."""
        declaration = self.declaration.over(farther.declaration)
        return Defaults(declaration, self.dropped | farther.dropped, self.broken or farther.broken)

    @property
    def tell_names(self) -> bool:
        """Whether short names can be told in full; not when a key that is wrong may have been meant for that."""
        return self.dropped <= set(DefaultsDeclaration.model_fields) - {"catalog", "database"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One table, view or source as declared, without the keys in ``dropped``, which are wrong themselves.

    ``sound`` is false when it has mistakes already. ``root`` is the file or folder of all definitions. Tables that are to be
    fresher than ``threshold``, and say nothing else, are refreshed all the time. ``formats`` are those that tables of its catalog
    may have; ``None`` when nobody knows.
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
        """Its file for people, from the folder that holds all definitions: ``definitions/sales/orders.yaml``."""
        path, above = self.document.path.absolute(), self.root.absolute().parent
        return path.relative_to(above).as_posix() if path.is_relative_to(above) else path.name

    @property
    def may_have_watermark(self) -> bool:
        """Whether it is a source that tells by its partitions how far it is; so may a view, of which only its catalog knows."""
        if not isinstance(self.declaration, SourceDeclaration):
            return False
        return self.declaration.watermark == "source" or self.declaration.format == VIEW or "watermark" in self.dropped

    def mistake(self, key: str, message: str, *inner: str | int) -> Mistake:
        """A mistake in the value of one of the entry's keys."""
        return self.document.mistake((*self.location, key, *inner), message)


def format_of(entry: Entry, declared: TableDeclaration) -> str:
    """The format that a table has, by itself or by the defaults."""
    return declared.format or entry.defaults.format or DEFAULT_FORMAT


@dataclass(frozen=True, slots=True)
class Expansion:
    """A query with every name in full; ``origins`` says through which reference each upstream table is read, and ``edits``
    what was changed of the text that the user wrote.

    ``nested`` is how deep views read views in it, ``may_have_watermark`` whether partitions of a source may tell how far it is.
    """

    query: str
    analysis: Analysis
    origins: Mapping[TableIdentifier, Reference]
    edits: tuple[Edit, ...] = ()
    nested: int = 0
    may_have_watermark: bool = True
