"""What is different between what is declared and what is deployed; what a refresh would refuse is told where it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.catalog.values import AnyTable, CatalogDynamicTable
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import CatalogUnavailableError, SchemaEvolutionError
from airflow_dynamic_tables.formats.small_files import Limits
from airflow_dynamic_tables.services.deployments.diffing import differences, no_longer_declared
from airflow_dynamic_tables.services.deployments.values import Change, ColumnChange, Cost, Touched
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.maintenance.compacting import compact
from tests.services.deployments.conftest import QUERY, VISITS, Bench

TOTAL = TableIdentifier("lake", "web", "total")


def changes(bench: Bench, definitions: Definitions) -> dict[str, Change]:
    return {one.identifier.table: one.change for one in differences(bench.workspace, definitions)}


def test_from_nothing_to_unchanged_and_no_longer_declared(bench: Bench) -> None:
    definitions = bench.declared()
    assert changes(bench, definitions) == {"visits": Change.NEW, "total": Change.NEW}
    for table in definitions.tables.values():
        ensure(bench.workspace, table)
    assert changes(bench, definitions) == {"visits": Change.UNCHANGED, "total": Change.UNCHANGED}
    bench.fill(definitions)
    assert changes(bench, definitions) == {"visits": Change.UNCHANGED, "total": Change.UNCHANGED}, "rows are no change"

    alone = Definitions({VISITS: definitions.tables[VISITS]}, definitions.sources)
    assert changes(bench, alone) == {"visits": Change.UNCHANGED, "total": Change.REMOVED}
    assert len(differences(bench.workspace, alone, is_complete=False)) == 1, "a mistake may hide its declaration"
    assert len(differences(bench.workspace, alone, [alone.tables[VISITS]])) == 1


def test_tables_that_nobody_declares_any_more(bench: Bench, tmp_path: Path) -> None:
    definitions = bench.declared()
    bench.fill(definitions)
    ensure(bench.workspace, definitions.tables[TOTAL])
    other = tmp_path / "other" / "web.sql"
    other.parent.mkdir()
    other.write_text("CREATE DYNAMIC TABLE lake.web.theirs FRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS x")
    (theirs,) = load_definitions(other).tables.values()
    ensure(bench.workspace, theirs)
    root = tmp_path / "web.yaml"
    assert no_longer_declared(bench.workspace, definitions, root) == [], "other definitions declare theirs"
    total = Definitions({TOTAL: definitions.tables[TOTAL]}, definitions.sources)
    assert no_longer_declared(bench.workspace, total, root) == [VISITS], "which the file still names, in the query of another"

    other.write_text("-- dropped one day")
    nothing = Definitions()
    assert no_longer_declared(bench.workspace, nothing, root) == [theirs.identifier, TOTAL, VISITS]
    renamed = replace(definitions.tables[VISITS], identifier=TableIdentifier("lake", "web", "hits"), renamed_from="visits")
    followed = Definitions({renamed.identifier: renamed, **total.tables}, definitions.sources)
    assert VISITS not in no_longer_declared(bench.workspace, followed, root), "it is about to be renamed"


def test_an_older_copy_of_the_definitions_declares_nothing(bench: Bench, tmp_path: Path) -> None:
    """As an earlier version of a bundle that still lies there."""
    earlier, now = (tmp_path / version / "definitions" for version in ("v1", "v2"))
    for folder in (earlier, now):
        folder.mkdir(parents=True)
    (earlier / "web.yaml").write_text("dynamic_tables: [{name: lake.web.gone, freshness: 1 day, query: SELECT 1 AS x}]")
    (now / "web.yaml").write_text("dynamic_tables: []")
    (gone,) = load_definitions(earlier).tables.values()
    ensure(bench.workspace, gone)
    assert no_longer_declared(bench.workspace, load_definitions(now), now) == [gone.identifier]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (", comment: Two", "comment"),
        (", retries: 2", "retries"),
        (", columns: {n: how many}", "columns"),
        (", tags: [a]", "tags"),
    ],
)
def test_metadata(bench: Bench, more: str, name: str) -> None:
    bench.fill(bench.declared())
    found = bench.visits(bench.declared(more=more))
    assert found.change is Change.METADATA
    assert name in [field.name for field in found.fields]
    assert (found.cost, found.downstream, found.columns) == (None, (), ())


def test_the_same_query_in_other_words_makes_no_rows(bench: Bench) -> None:
    bench.fill(bench.declared())
    found = bench.visits(bench.declared("select ds, n, extra   FROM lake.raw.log -- as ever"))
    assert found.change is Change.METADATA
    assert found.query.splitlines()[2:] == ["@@ -1 +1 @@", f"-{QUERY}", "+select ds, n, extra   FROM lake.raw.log -- as ever"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (", timezone: Europe/Berlin", "the time zone changed"),
        (", spark: {conf: {spark.sql.ansi.enabled: false}}", "settings of Spark that decide what the query means changed"),
        (", expectations: [{not_null: [n], action: drop}]", "expectations that drop rows changed"),
    ],
)
def test_what_makes_other_rows_beside_the_query(bench: Bench, more: str, reason: str) -> None:
    bench.fill(bench.declared())
    found = bench.visits(bench.declared(more=more))
    assert (found.change, found.reason) == (Change.DATA, reason)
    assert found.downstream == (Touched(TOTAL, None),)


def test_other_data_with_what_it_touches_and_costs(bench: Bench) -> None:
    bench.fill(bench.declared())
    found = bench.visits(bench.declared("SELECT ds, n, extra + 1 AS extra FROM lake.raw.log"))
    assert (found.change, found.reason) == (Change.DATA, "the query changed")
    assert found.query.splitlines()[-1] == "+SELECT ds, n, extra + 1 AS extra FROM lake.raw.log"
    assert found.downstream == (Touched(TOTAL, ("extra",)),)
    assert found.cost == Cost(rows=2, bytes=found.cost.bytes if found.cost else None, files=2, partitions=2)
    assert found.cost.bytes
    untouched = bench.visits(bench.declared("SELECT ds, n + 1 AS n, extra FROM lake.raw.log"))
    assert untouched.downstream == ()


def test_new_columns(bench: Bench) -> None:
    bench.fill(bench.declared())
    found = bench.visits(bench.declared("SELECT ds, n, extra, cast(n AS DATE) AS day FROM lake.raw.log"))
    assert found.change is Change.COLUMNS
    assert found.columns == (ColumnChange("day", None, "date"),)
    assert found.downstream == ()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "query",
    [
        "SELECT ds, N, count(*) AS Extra FROM lake.raw.log GROUP BY 1, 2",
        "SELECT * FROM lake.raw.log",
        "SELECT ds, * FROM lake.raw.log",
        "SELECT ds, count(*), sum(n) FROM lake.raw.log GROUP BY ds",
        "SELECT ds, cast(n AS STRING) AS n, extra FROM lake.raw.log",
        "SELECT ds, n, extra FROM lake.raw.log UNION ALL SELECT 'x', 1, 2",
        "WITH few AS (SELECT ds FROM lake.raw.log) SELECT ds, 1 AS n, 2 AS extra FROM few",
    ],
)
def test_nothing_is_refused_that_may_fit(bench: Bench, query: str) -> None:
    bench.fill(bench.declared())
    assert bench.visits(bench.declared(query)).change is Change.DATA


REBUILDS: Mapping[str, tuple[str, str, tuple[ColumnChange, ...]]] = {
    "dropped": ("SELECT ds, n FROM lake.raw.log", "no longer returns column 'extra'", (ColumnChange("extra", "bigint", None),)),
    "moved": ("SELECT ds, extra, n FROM lake.raw.log", "was n bigint, but the query returns extra bigint", ()),
    "renamed": (
        "SELECT ds, m, extra FROM lake.raw.log",
        "was n bigint, but the query returns m of a type that Spark decides",
        (ColumnChange("n", "bigint", None), ColumnChange("m", None, "of a type that Spark decides")),
    ),
    "of another type": (
        "SELECT ds, cast(n AS DATE) AS n, extra FROM lake.raw.log",
        "was n bigint, but the query returns n date",
        (ColumnChange("n", "bigint", "date"),),
    ),
    "fewer of a union": ("SELECT ds, n FROM lake.raw.log UNION SELECT 'x', 1", "no longer returns column 'extra'", ()),
}


@pytest.mark.parametrize("case", REBUILDS)
def test_columns_that_do_not_fit(bench: Bench, case: str) -> None:
    query, told, columns = REBUILDS[case]
    bench.fill(bench.declared())
    found = bench.visits(bench.declared(query))
    assert found.change is Change.REBUILD
    assert told in (found.reason or "")
    assert "--full-refresh" in (found.reason or "")
    assert not columns or found.columns == columns
    assert found.cost is not None
    if case in ("dropped", "fewer of a union"):
        assert found.downstream == (Touched(TOTAL, ("extra",) if case == "dropped" else None),)


def test_other_keys_and_another_format(bench: Bench) -> None:
    definitions = bench.declared()
    bench.fill(definitions)
    table = definitions.tables[VISITS]
    for other, told in (
        (replace(table, partition_keys=("n",)), "its definition now by (n)"),
        (replace(table, format="parquet", atomicity="none"), "its definition now says parquet"),
    ):
        (found,) = differences(bench.workspace, definitions, [other])
        assert found.change is Change.REBUILD
        assert told in (found.reason or "")


def test_what_was_registered_and_refused_is_still_to_be_done(bench: Bench) -> None:
    bench.fill(bench.declared())
    narrow = bench.declared("SELECT ds, n FROM lake.raw.log")
    with pytest.raises(SchemaEvolutionError):
        bench.fill(narrow, more=())
    found = bench.visits(narrow)
    assert found.change is Change.REBUILD, "the catalog has the definition, the table not its columns"
    bench.fill(narrow, more=(), full=True)
    assert bench.visits(narrow).change is Change.UNCHANGED


def test_a_table_that_others_altered_is_seen_when_it_is_named(bench: Bench) -> None:
    definitions = bench.declared()
    bench.fill(definitions)
    catalog = bench.workspace.catalog("lake")
    assert isinstance(catalog, SqlCatalog)
    with catalog.iceberg.load_table(("web", "visits")).update_schema() as schema:
        schema.rename_column("n", "number")
    found = bench.visits(definitions)
    assert found.change is Change.REBUILD
    assert "was number bigint, but the query returns n" in (found.reason or "")


def test_what_was_registered_waits_for_its_first_refresh(bench: Bench) -> None:
    bench.fill(bench.declared())
    other = bench.declared("SELECT ds, n, 2 * extra AS extra FROM lake.raw.log")
    ensure(bench.workspace, other.tables[VISITS])
    assert bench.visits(other).change is Change.DATA
    bench.fill(other)
    assert bench.visits(other).change is Change.UNCHANGED


@pytest.mark.parametrize("change", ["fence", "compaction"])
def test_what_changes_no_rows_does_not_make_what_was_registered(bench: Bench, change: str) -> None:
    """A sweep after a kill fences the commit off, and the maintenance compacts: both add a snapshot without a version."""
    bench.fill(bench.declared(), days={"1": [1, 2, 3]}, scattered=True)
    other = bench.declared("SELECT ds, n, 2 * extra AS extra FROM lake.raw.log")
    ensure(bench.workspace, other.tables[VISITS])
    before = snapshot_of(bench)
    if change == "fence":
        bench.workspace.existing_table(VISITS).stage("struck").fence()
    else:
        assert compact(bench.workspace, VISITS, Limits(many=1)).files
    assert snapshot_of(bench) != before
    assert bench.visits(other).change is Change.DATA
    bench.fill(other)
    assert bench.visits(other).change is Change.UNCHANGED


def test_a_note_of_an_earlier_release(bench: Bench) -> None:
    """It has the snapshot of the table instead of the token of its version."""
    bench.fill(bench.declared())
    other = bench.declared("SELECT ds, n, 2 * extra AS extra FROM lake.raw.log")
    snapshot = snapshot_of(bench)
    ensure(bench.workspace, other.tables[VISITS])

    def noted(entry: AnyTable) -> AnyTable:
        assert isinstance(entry, CatalogDynamicTable)
        return replace(entry, definition={**(entry.definition or {}), "rows_before": snapshot})

    catalog = bench.workspace.catalog("lake")
    catalog.change_table(VISITS.path, noted)
    assert bench.visits(other).change is Change.DATA
    bench.fill(other)
    assert bench.visits(other).change is Change.UNCHANGED


def snapshot_of(bench: Bench) -> str | None:
    entry = bench.workspace.catalog("lake").get_table(VISITS.path)
    assert isinstance(entry, CatalogDynamicTable)
    return entry.snapshot


def test_an_entry_of_an_earlier_release(bench: Bench) -> None:
    definitions = bench.declared()
    ensure(bench.workspace, definitions.tables[VISITS])
    catalog = bench.workspace.catalog("lake")
    entry = catalog.get_table(VISITS.path)
    assert isinstance(entry, CatalogDynamicTable)
    catalog.alter_table(VISITS.path, replace(entry, definition=None))
    assert bench.visits(definitions).change is Change.METADATA


def test_a_catalog_that_does_not_answer_hides_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    others = "- {name: other.web.alone, query: SELECT 1 AS x}"
    definitions = bench.declared(others=others)
    asked: list[str] = []

    def refuse(catalog: SqlCatalog, database: str) -> dict[str, CatalogDynamicTable]:
        asked.append(f"{catalog.name}.{database}")
        if catalog.name == "lake":
            raise CatalogUnavailableError("Cannot reach lake.")
        return {}

    monkeypatch.setattr(SqlCatalog, "get_dynamic_tables", refuse)
    found = {one.identifier.table: one for one in differences(bench.workspace, definitions)}
    assert {name: one.change for name, one in found.items()} == {
        "visits": Change.UNKNOWN,
        "total": Change.UNKNOWN,
        "alone": Change.NEW,
    }
    assert found["visits"].reason == "Cannot reach lake."
    assert asked.count("lake.web") == 1, "nobody waits for it twice"


def test_unchanged_tables_cost_no_call_each(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "\n".join(f"- {{name: t{number}, query: SELECT {number} AS x}}" for number in range(20))
    definitions = bench.declared(others=many)
    for table in definitions.tables.values():
        ensure(bench.workspace, table)

    def look(_: SqlCatalog, path: ObjectPath, version: str | None = None) -> CatalogDynamicTable:
        raise AssertionError(f"{path} {version} was asked for by itself")

    monkeypatch.setattr(SqlCatalog, "get_table", look)
    assert set(changes(bench, definitions).values()) == {Change.UNCHANGED}
