"""Views and functions of catalogs in the queries of refreshes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.values import CatalogDatabase, CatalogFunction, CatalogTable, CatalogView
from airflow_dynamic_tables.core.identifiers import ObjectPath, TableIdentifier
from airflow_dynamic_tables.core.refresh.plan import FunctionBinding, RefreshPlan
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import load_definitions, load_task_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import (
    CatalogError,
    ConfigurationError,
    DatabaseNotFoundError,
    DefinitionError,
    TableAlreadyExistsError,
    UpstreamError,
)
from airflow_dynamic_tables.services.catalogs import create_view
from airflow_dynamic_tables.services.lifecycle.registration import ensure
from airflow_dynamic_tables.services.queries import inline_views
from airflow_dynamic_tables.services.refresh.requests import RefreshRequest
from airflow_dynamic_tables.services.refresh.running import begin, run
from airflow_dynamic_tables.services.settings import embedded_settings
from airflow_dynamic_tables.services.workspace import Workspace, open_workspace
from tests.support.pyarrow_job import write_numbers

YAML = """
defaults: {catalog: lake, database: sales}
sources:
- {name: big, format: view}
dynamic_tables:
- {name: numbers, freshness: 1 day, query: SELECT 1 AS x}
- {name: total, freshness: 1 day, query: "SELECT sum(b.x) AS x FROM big b"}
"""
NUMBERS, TOTAL, BIG = (TableIdentifier("lake", "sales", name) for name in ("numbers", "total", "big"))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(embedded_settings({"AIRFLOW_HOME": str(tmp_path)})) as opened:
        opened.catalog("lake").create_database("sales", CatalogDatabase())
        yield opened


@pytest.fixture
def definitions(tmp_path: Path) -> Definitions:
    (tmp_path / "sales.yaml").write_text(YAML)
    return load_definitions(tmp_path / "sales.yaml")


def request_of(definitions: Definitions, name: TableIdentifier, token: str) -> RefreshRequest:
    return RefreshRequest(
        definitions.tables[name], definitions.sources, datetime(2024, 3, 1, tzinfo=UTC), token=token, owner="test"
    )


def planned(workspace: Workspace, definitions: Definitions, name: TableIdentifier = TOTAL) -> RefreshPlan:
    run(workspace, request_of(definitions, NUMBERS, "n1"), write_numbers)
    begun = begin(workspace, request_of(definitions, name, "t1"))
    return begun.plan


def with_query(query: str, tmp_path: Path) -> Definitions:
    (tmp_path / "other.yaml").write_text(YAML.replace("SELECT sum(b.x) AS x FROM big b", query))
    return load_definitions(tmp_path / "other.yaml")


class TestViews:
    def test_a_refresh_reads_what_the_view_reads(self, workspace: Workspace, definitions: Definitions) -> None:
        create_view(workspace, BIG, "SELECT x FROM numbers WHERE x > 1")
        plan = planned(workspace, definitions)
        assert [source.identifier for source in plan.sources] == ["lake.sales.numbers"]
        assert plan.statement == (
            "SELECT * FROM (\nSELECT sum(b.x) AS x FROM (\n"
            "SELECT x FROM `lake`.`sales`.`numbers` AS `numbers` WHERE x > 1\n) b\n)"
        )
        assert "`sales_numbers_0`" in plan.query
        assert "`lake`" not in plan.query

    def test_a_view_of_views_reads_the_tables_below_once(self, workspace: Workspace, definitions: Definitions) -> None:
        create_view(workspace, TableIdentifier("lake", "sales", "v1"), "SELECT x FROM numbers")
        create_view(workspace, BIG, "SELECT a.x FROM v1 a JOIN sales.v1 b ON a.x = b.x JOIN lake.sales.numbers n ON n.x = a.x")
        inlined = inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        assert inlined.upstream == (NUMBERS,)
        assert inlined.expanded_query.count("`lake`.`sales`.`numbers`") == 3
        assert "v1" not in inlined.expanded_query

    @pytest.mark.parametrize(
        ("query", "policies", "expected"),
        [
            ("SELECT b.x FROM big b", "big: ignore", "ignore"),
            ("SELECT b.x FROM big b", "big: affected", "affected"),
            ("SELECT b.x FROM big b JOIN numbers n ON n.x = b.x", "big: ignore", "refresh"),
            ("SELECT b.x FROM big b JOIN numbers n ON n.x = b.x", "big: ignore, numbers: affected", "affected"),
        ],
    )
    def test_on_change_of_a_view_is_that_of_the_tables_below(
        self, workspace: Workspace, tmp_path: Path, query: str, policies: str, expected: str
    ) -> None:
        create_view(workspace, TableIdentifier("lake", "sales", "v1"), "SELECT x FROM numbers")
        create_view(workspace, BIG, "SELECT x FROM v1")
        definitions = with_query(f'{query}", on_change: {{{policies}}}, comment: "', tmp_path)
        inlined = inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        assert inlined.on_change.get(str(NUMBERS), "refresh") == expected

    def test_short_names_of_a_view_are_of_its_own_database(self, workspace: Workspace, definitions: Definitions) -> None:
        catalog = workspace.catalog("lake")
        catalog.create_database("raw", CatalogDatabase())
        # As another engine may have made it: its text is not expanded.
        catalog.create_table(
            ObjectPath("raw", "v"), CatalogView("SELECT x FROM t", "SELECT x FROM t JOIN sales.numbers USING (x)")
        )
        create_view(workspace, BIG, "SELECT x FROM raw.v")
        inlined = inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        assert inlined.upstream == (TableIdentifier("lake", "raw", "t"), NUMBERS)

    def test_what_changes_below_the_view_changes_the_next_refresh(self, workspace: Workspace, definitions: Definitions) -> None:
        create_view(workspace, BIG, "SELECT x FROM numbers")
        create_view(workspace, BIG, "SELECT 42 AS x", "No table any more", replace=True)
        inlined = inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        assert inlined.upstream == ()
        assert "SELECT 42 AS x" in inlined.expanded_query

    def test_no_name_of_the_query_hides_what_the_job_binds(self, workspace: Workspace, tmp_path: Path) -> None:
        """The job reads a table as a temporary view; a common table expression of that name would be read in its place."""
        query = "WITH Sales_Numbers_0 AS (SELECT 99 AS x) SELECT n.x, o.x AS y FROM numbers n JOIN sales_numbers_0 o"
        plan = planned(workspace, with_query(query, tmp_path))
        assert [source.view for source in plan.sources] == ["sales_numbers_0_"]
        assert "FROM `sales_numbers_0_` n JOIN sales_numbers_0 o" in plan.query

    def test_a_view_whose_names_may_mean_two_tables_is_refused(self, workspace: Workspace) -> None:
        query = "SELECT numbers.x FROM raw.numbers JOIN numbers\nON raw.numbers.x = sales.numbers.x"
        with pytest.raises(DefinitionError, match=r"1:8: 'numbers' may mean more than one table"):
            create_view(workspace, BIG, query)

    def test_a_parent_below_the_view_must_have_a_version(self, workspace: Workspace, definitions: Definitions) -> None:
        create_view(workspace, BIG, "SELECT x FROM numbers")
        with pytest.raises(UpstreamError, match=r"lake\.sales\.numbers has no version yet"):
            begin(workspace, request_of(definitions, TOTAL, "t1"))

    def test_a_table_that_only_the_view_names_is_read_as_its_catalog_describes_it(
        self, workspace: Workspace, definitions: Definitions, tmp_path: Path
    ) -> None:
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw" / "part.csv").write_text("x\n1\n")
        raw = CatalogTable((Column("x", "bigint"),), format="csv", location=str(tmp_path / "raw"), options={"header": "true"})
        workspace.catalog("lake").create_table(ObjectPath("sales", "raw"), raw)
        create_view(workspace, BIG, "SELECT x FROM raw")
        begun = begin(workspace, request_of(definitions, TOTAL, "t1"))
        (source,) = begun.plan.sources
        assert (source.format, source.schema, source.options) == ("csv", "`x` bigint", {"header": "true"})
        assert [Path(file).name for file in source.files] == ["part.csv"]

    def test_a_source_that_is_no_view(self, workspace: Workspace, definitions: Definitions) -> None:
        with pytest.raises(ConfigurationError, match=r"lake\.sales\.big is declared as a view but does not exist"):
            inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        workspace.catalog("lake").create_table(BIG.path, CatalogTable(format="csv"))
        with pytest.raises(ConfigurationError, match="is declared as a view but is a table"):
            inline_views(workspace, definitions.tables[TOTAL], definitions.sources)

    def test_circles_are_errors(self, workspace: Workspace, definitions: Definitions) -> None:
        catalog = workspace.catalog("lake")
        for name, read in (("big", "other"), ("other", "big")):
            query = f"SELECT x FROM {read}"
            catalog.create_table(ObjectPath("sales", name), CatalogView(query, query))
        with pytest.raises(CatalogError, match=r"circle: lake\.sales\.big -> lake\.sales\.other -> lake\.sales\.big\."):
            inline_views(workspace, definitions.tables[TOTAL], definitions.sources)
        with pytest.raises(CatalogError, match=r"lake\.sales\.big would read itself: .*other -> lake\.sales\.big\."):
            create_view(workspace, BIG, "SELECT x FROM other", replace=True)

    def test_a_table_that_reads_itself_through_a_view(self, workspace: Workspace, definitions: Definitions) -> None:
        create_view(workspace, BIG, "SELECT x FROM numbers")
        ensure(workspace, definitions.tables[TOTAL])
        with pytest.raises(CatalogError, match=r"would read itself: lake\.sales\.big -> lake\.sales\.total -> lake\.sales\.big"):
            create_view(workspace, BIG, "SELECT x FROM total", replace=True)
        workspace.catalog("lake").alter_table(BIG.path, CatalogView("SELECT x FROM total", "SELECT x FROM total"))
        with pytest.raises(CatalogError, match=r"lake\.sales\.total would read itself"):
            inline_views(workspace, definitions.tables[TOTAL], definitions.sources)

    def test_the_text_of_a_view_is_kept_as_written_and_in_full(self, workspace: Workspace) -> None:
        create_view(workspace, BIG, "  SELECT n.x -- all\nFROM numbers n;\n", "Big ones")
        view = workspace.catalog("lake").get_table(BIG.path)
        assert view == CatalogView(
            "SELECT n.x -- all\nFROM numbers n;", "SELECT n.x -- all\nFROM `lake`.`sales`.`numbers` n", comment="Big ones"
        )

    def test_what_cannot_become_a_view(self, workspace: Workspace) -> None:
        with pytest.raises(DefinitionError, match=r"^2:6: bad SQL"):
            create_view(workspace, BIG, "SELECT a\nFROM WHERE")
        with pytest.raises(DatabaseNotFoundError):
            create_view(workspace, TableIdentifier("lake", "missing", "v"), "SELECT 1 AS a")
        create_view(workspace, BIG, "SELECT 1 AS a")
        with pytest.raises(TableAlreadyExistsError):
            create_view(workspace, BIG, "SELECT 2 AS a")
        workspace.catalog("lake").create_table(NUMBERS.path, CatalogTable(format="csv"))
        with pytest.raises(CatalogError, match="cannot become a CatalogView"):
            create_view(workspace, NUMBERS, "SELECT 2 AS a", replace=True)

    def test_a_task_of_a_table_over_a_view_knows_all_that_the_view_may_read(self, tmp_path: Path) -> None:
        (tmp_path / "sales.yaml").write_text(YAML)
        cache = Cache(tmp_path / "cache", settled=timedelta(0))
        for _ in ("read", "from the cache"):
            found = load_task_definitions(tmp_path / "sales.yaml", TOTAL.workflow_id, cache=cache)
            assert set(found.tables) == {NUMBERS, TOTAL}
            assert set(found.sources) == {BIG}
            alone = load_task_definitions(tmp_path / "sales.yaml", NUMBERS.workflow_id, cache=cache)
            assert set(alone.tables) == {NUMBERS}
            assert set(alone.sources) == set()


class TestFunctions:
    def test_a_function_of_the_tables_own_database(self, workspace: Workspace, tmp_path: Path) -> None:
        python = CatalogFunction("shop:net", "python", {"returns": "bigint", "py_files": "file:///a.py, file:///b.zip"})
        workspace.catalog("lake").create_function(ObjectPath("sales", "Net"), python)
        query = "SELECT NET(x) + net(x) + sales.net(x) AS x FROM numbers WHERE lake.sales.`Net`(x) > abs(x)"
        plan = planned(workspace, with_query(query, tmp_path))
        assert plan.functions == (
            FunctionBinding(
                "lake.sales.net", "sales_net_0", "python", "shop:net", "bigint", (), ("file:///a.py", "file:///b.zip")
            ),
        )
        assert plan.query.count("`sales_net_0`(x)") == 4
        assert plan.statement.count("`lake`.`sales`.`net`(x)") == 4
        assert "abs(x)" in plan.query
        assert RefreshPlan.from_json(plan.to_json()) == plan

    def test_what_no_catalog_has_is_left_to_spark(self, workspace: Workspace, tmp_path: Path) -> None:
        query = "SELECT luhn_check(x) AS a, system.builtin.abs(x) AS b, builtin.abs(x) AS c, other.f(x) AS d FROM numbers"
        plan = planned(workspace, with_query(query, tmp_path))
        assert plan.functions == ()
        for call in ("luhn_check(x)", "system.builtin.abs(x)", "builtin.abs(x)", "other.f(x)"):
            assert call in plan.query
        assert "system" not in workspace.catalogs.names()

    def test_functions_of_a_view_are_of_the_views_database(self, workspace: Workspace, definitions: Definitions) -> None:
        catalog = workspace.catalog("lake")
        catalog.create_database("raw", CatalogDatabase())
        for database, code in (("raw", "com.example.Raw"), ("sales", "com.example.Sales")):
            catalog.create_function(ObjectPath(database, "f"), CatalogFunction(code, properties={"jars": "file:///f.jar"}))
        create_view(workspace, TableIdentifier("lake", "raw", "v"), "SELECT f(x) AS x FROM sales.numbers")
        create_view(workspace, BIG, "SELECT f(x) AS x FROM raw.v")
        plan = planned(workspace, definitions)
        assert [(found.function, found.code) for found in plan.functions] == [
            ("sales_f_0", "com.example.Sales"),
            ("raw_f_1", "com.example.Raw"),
        ]
        assert plan.query.index("`sales_f_0`(x)") < plan.query.index("`raw_f_1`(x)")
