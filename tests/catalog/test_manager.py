"""Named catalogs and the file that declares them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_dynamic_tables.catalog.base import CatalogDefaults
from airflow_dynamic_tables.catalog.file import default_names, embedded_catalogs, load_catalogs
from airflow_dynamic_tables.catalog.manager import CatalogManager
from airflow_dynamic_tables.catalog.sql.catalog import MemoryCatalog, SqlCatalog
from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import CatalogNotFoundError, CatalogUnavailableError, ConfigurationError, DefinitionError


@pytest.fixture
def defaults(tmp_path: Path) -> CatalogDefaults:
    """Where catalogs without parameters keep their state."""
    return CatalogDefaults(f"sqlite:///{tmp_path}/state/state.db", f"file://{tmp_path}/state/warehouse")


@pytest.fixture
def load(tmp_path: Path, defaults: CatalogDefaults) -> Callable[[str], CatalogManager]:
    """Write a catalogs file and load it."""

    def write_and_load(text: str) -> CatalogManager:
        path = tmp_path / "project" / "catalogs.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_catalogs(path, defaults)

    return write_and_load


class Clock:
    """Seconds that pass when somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def pass_by(self) -> None:
        """A minute."""
        self.seconds += 60


class CountingCatalog(MemoryCatalog):
    """Counts how often it is opened and closed; can be down."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.opened = self.closed = 0
        self.is_down = False
        self.waits: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Count, or fail."""
        if self.is_down:
            self.waits()
            raise CatalogUnavailableError
        self.opened += 1

    def close(self) -> None:
        """Count."""
        self.closed += 1


class TestManager:
    def test_a_catalog_is_opened_when_it_is_first_needed_and_closed_at_the_end(self) -> None:
        used, unused = CountingCatalog("used"), CountingCatalog("unused")
        manager = CatalogManager("used")
        manager.register(used)
        manager.register(unused)
        assert manager.names() == ["unused", "used"]
        assert manager.get("used") is manager.get("used") is used
        manager.close()
        manager.close()
        assert (used.opened, used.closed, unused.opened, unused.closed) == (1, 1, 0, 0)
        manager.get("used")
        assert used.opened == 2

    def test_one_that_is_down_fails_only_those_that_need_it(self) -> None:
        up, down = CountingCatalog("up"), CountingCatalog("down")
        down.is_down = True
        manager = CatalogManager("down", clock=lambda: 0.0)
        manager.register(up)
        manager.register(down)
        assert manager.get("up") is up
        assert str(manager.resolve("orders")) == "down.default.orders"
        with pytest.raises(CatalogUnavailableError):
            manager.get("down")
        down.is_down = False
        assert manager.get("down") is down

    def test_one_that_is_silent_is_not_waited_for_by_everybody(self) -> None:
        clock = Clock()
        silent = CountingCatalog("silent")
        silent.is_down = True
        silent.waits = clock.pass_by
        manager = CatalogManager(clock=lambda: clock.seconds)
        manager.register(silent)
        for _ in range(1000):
            with pytest.raises(CatalogUnavailableError) as error:
                manager.get("silent")
        assert clock.seconds == 60, "one of them waited"
        assert len(error.traceback) < 10, "nobody's is that of all who asked"
        silent.is_down = False
        clock.seconds += 10
        assert manager.get("silent") is silent

    def test_an_unknown_one_is_told_with_the_known_ones(self) -> None:
        manager = CatalogManager()
        with pytest.raises(CatalogNotFoundError, match="There is no catalog lake; known are none"):
            manager.get("lake")
        manager.register(MemoryCatalog("b"))
        manager.register(MemoryCatalog("a"))
        with pytest.raises(CatalogNotFoundError, match="There is no catalog lake; known are a, b"):
            manager.get("lake")

    def test_registering_again_replaces(self) -> None:
        manager = CatalogManager()
        old, new = CountingCatalog("lake"), CountingCatalog("lake")
        manager.register(old)
        manager.get("lake")
        manager.register(new)
        assert manager.get("lake") is new
        assert new.opened == 1

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("orders", TableIdentifier("lake", "sales", "orders")),
            ("raw.orders", TableIdentifier("lake", "raw", "orders")),
            ("other.raw.orders", TableIdentifier("other", "raw", "orders")),
            ("`a.b`.`c``d`", TableIdentifier("lake", "a.b", "c`d")),
            ("Umsätze", TableIdentifier("lake", "sales", "Umsätze")),
        ],
    )
    def test_names_of_one_two_and_three_parts(self, text: str, expected: TableIdentifier) -> None:
        manager = CatalogManager("lake", "sales")
        assert manager.resolve(text) == expected

    @pytest.mark.parametrize("text", ["", ".", "a.", "a.b.c.d", "`a"])
    def test_what_is_no_name(self, text: str) -> None:
        manager = CatalogManager("lake")
        manager.register(MemoryCatalog("lake"))
        with pytest.raises(ConfigurationError):
            manager.resolve(text)

    def test_embedded_catalogs_have_any_name_and_one_database(self, defaults: CatalogDefaults, tmp_path: Path) -> None:
        manager = embedded_catalogs(defaults)
        lake = manager.get("lake")
        assert isinstance(lake, SqlCatalog)
        assert lake.list_databases() == ["default"]
        assert lake.iceberg.properties["warehouse"] == f"file://{tmp_path}/state/warehouse/lake"
        assert manager.get("other").list_databases() == ["default"]
        assert (tmp_path / "state" / "state.db").is_file()
        manager.close()


class TestFile:
    def test_flat(self, load: Callable[[str], CatalogManager], tmp_path: Path) -> None:
        manager = load("""
            catalogs:
              - name: scratch
                type: memory
              - name: lake
                type: sql
                is-default: true
                default-database: sales
                connection-params: {url: "sqlite:///state/lake.db", warehouse: warehouse}
        """)
        assert manager.names() == ["lake", "scratch"]
        assert str(manager.resolve("orders")) == "lake.sales.orders"
        lake = manager.get("lake")
        assert isinstance(lake, SqlCatalog)
        assert lake.list_databases() == ["sales"]
        assert (tmp_path / "project" / "state" / "lake.db").is_file()
        assert lake.iceberg.properties["warehouse"] == f"file://{tmp_path}/project/warehouse"
        manager.close()

    def test_nested_as_in_the_seed(self, load: Callable[[str], CatalogManager]) -> None:
        manager = load("""
            catalogs:
              - name: one
                catalog:
                  type: memory
                  is-default: false
                  default-db: db1
              - name: two
                catalog:
                  type: memory
                  is-default: true
                  default-database: db2
        """)
        assert manager.names() == ["one", "two"]
        assert str(manager.resolve("t")) == "two.db2.t"
        assert manager.get("one").default_database == "db1"

    def test_the_first_one_is_the_default_when_none_says_so(self, load: Callable[[str], CatalogManager]) -> None:
        assert load("catalogs: [{name: b, type: memory}, {name: a, type: memory}]").default_catalog == "b"

    def test_what_is_not_said_is_embedded(self, load: Callable[[str], CatalogManager], tmp_path: Path) -> None:
        manager = load("catalogs: [{name: lake}]")
        lake = manager.get("lake")
        assert isinstance(lake, SqlCatalog)
        assert lake.iceberg.properties["warehouse"] == f"file://{tmp_path}/state/warehouse/lake"
        assert (tmp_path / "state" / "state.db").is_file()
        manager.close()

    def test_secrets_come_from_the_environment(
        self, load: Callable[[str], CatalogManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLACE", f"{tmp_path}/from environment")
        monkeypatch.setenv("BUCKET", "s3://bucket")
        manager = load("""
            catalogs:
              - name: lake
                connection-params: {url: "sqlite:///${PLACE}/${BUCKET}.db", warehouse: "${BUCKET}/wh"}
        """)
        lake = manager.get("lake")
        assert isinstance(lake, SqlCatalog)
        assert lake.iceberg.properties["warehouse"] == "s3://bucket/wh"
        assert list((tmp_path / "from environment").rglob("bucket.db"))
        manager.close()

    def test_a_catalog_that_is_down_is_no_reason_not_to_load(self, load: Callable[[str], CatalogManager]) -> None:
        manager = load("""
            catalogs:
              - {name: far, is-default: true, connection-params: {url: "postgresql://me:pw@127.0.0.1:1/db"}}
              - {name: near, type: memory}
        """)
        assert manager.get("near").list_databases() == ["default"]
        with pytest.raises(CatalogUnavailableError):
            manager.get("far")

    @pytest.mark.parametrize(
        ("text", "mistake"),
        [
            ("", "1:1: is empty; declare 'catalogs', or remove the file"),
            ("[]", "1:1: a catalogs file holds a list 'catalogs' with at least one catalog"),
            ("catalogs: {lake: {type: sql}}", "1:1: a catalogs file holds a list 'catalogs' with at least one catalog"),
            ("catalogs: []", "1:1: a catalogs file holds a list 'catalogs' with at least one catalog"),
            ("catalogs: [lake]", "1:12: every catalog needs a name"),
            ("catalogs: [{type: sql}]", "1:12: every catalog needs a name"),
            ("catalogs: [{name: ''}]", "1:12: every catalog needs a name"),
            ("catalogs: [{name: '..'}]", "1:19: '..' is no name; choose one that has letters or digits"),
            ('catalogs: [{name: "a\\0b"}]', "1:19: a name may not hold the invisible character U+0000; remove it"),
            ("catalogs: [{name: a, default-database: '.'}]", "1:40: '.' is no name; choose one that has letters or digits"),
            ("catalogs: [{name: a}, {name: a}]", "1:30: catalog a is declared twice"),
            (
                "catalogs: [{name: a, is-default: true}, {name: b, is-default: true}]",
                "1:41: catalog b cannot be the default, too: there is one already",
            ),
            (
                "catalogs:\n- name: a\n  type: nessie",
                "3:9: catalog type 'nessie' is not supported; write 'type: iceberg'",
            ),
            ("catalogs: [{name: a, is-default: 'yes'}]", "1:34: 'is-default' must be true or false"),
            ("catalogs: [{name: a, catalog: sql}]", "1:22: unknown key 'catalog'"),
            ("catalogs: [{name: a, connection-params: x}]", "1:41: 'connection-params' must be a mapping"),
            (
                "catalogs: [{name: a, is_default: true}]",
                "1:22: unknown key 'is_default'; known are conn-id, connection-params, default-database, is-default, name, type",
            ),
            (
                "catalogs: [{name: a, catalog: {connection-params: {uri: x}}}]",
                "1:52: unknown connection parameter 'uri'; known are url, warehouse",
            ),
            ("catalogs: [{name: a, type: postgres}]", "1:28: catalog type 'postgres' is not supported; write 'type: jdbc'"),
            (
                "catalogs: [{name: a, type: delta}]",
                "1:28: catalog type 'delta' is not supported; write 'type: sql' or 'type: hive'",
            ),
            (
                "catalogs: [{name: a, type: sqlite}]",
                "1:28: catalog type 'sqlite' is not supported; use one of sql, memory, hive, jdbc, iceberg",
            ),
            (
                "catalogs: [{name: a, type: memory, connection-params: {url: x}}]",
                "1:56: unknown connection parameter 'url'",
            ),
            ("catalogs: [{name: a, connection-params: {url: {a: b}}}]", "1:47: 'url' must be text; put it in quotes"),
            ("catalogs: [{name: a, connection-params: {warehouse: [x]}}]", "1:53: 'warehouse' must be text; put it in quotes"),
            ("catalogs: [{name: a, connection-params: {warehouse: no}}]", "1:53: 'warehouse' must be text; put it in quotes"),
            ("catalogs: [{name: a, default-database: NO}]", "1:40: 'default-database' must be text"),
            ("catalogs: [", "2:1: is no YAML"),
        ],
    )
    def test_a_mistake_has_its_place(
        self, load: Callable[[str], CatalogManager], tmp_path: Path, text: str, mistake: str
    ) -> None:
        with pytest.raises(DefinitionError) as raised:
            load(text)
        assert str(raised.value).startswith(f"{tmp_path}/project/catalogs.yaml:{mistake}")

    @pytest.mark.parametrize(
        ("text", "mistake"),
        [
            (
                "catalogs: [{name: near, type: memory}, {name: a, connection-params: {url: 'postgresql://me:${DT_NO_SUCH}@host/db'}}]",
                "catalog a: environment variable DT_NO_SUCH is not set.",
            ),
            (
                "catalogs: [{name: near, type: memory}, {name: a, connection-params: {url: 'mysql://host/db'}}]",
                "catalog a: mysql is not supported; the state lives in SQLite or PostgreSQL.",
            ),
            (
                "catalogs: [{name: near, type: memory}, {name: a, connection-params: {url: 'secret'}}]",
                "catalog a: The database URL is malformed; write for example postgresql://user@host/name.",
            ),
            (
                "catalogs: [{name: near, type: memory}, {name: a, connection-params: {url: 'sqlite:///:memory:'}}]",
                "catalog a: SQLite in memory is gone with its connection; write sqlite:///path/to/state.db.",
            ),
            (
                "catalogs: [{name: near, type: memory}, {name: a, conn-id: nobody}]",
                (
                    "catalog a: Airflow connection 'nobody' is not set; set AIRFLOW_CONN_NOBODY, "
                    "or run the command as 'airflow dynamic-tables ...', which also finds the connections that Airflow keeps."
                ),
            ),
        ],
    )
    def test_what_is_wrong_with_a_connection_is_told_to_those_who_need_it(
        self, load: Callable[[str], CatalogManager], tmp_path: Path, text: str, mistake: str
    ) -> None:
        manager = load(text)
        assert manager.get("near").list_databases() == ["default"]
        with pytest.raises(ConfigurationError) as raised:
            manager.get("a")
        assert str(raised.value) == f"{tmp_path}/project/catalogs.yaml:1:40: {mistake}"

    @pytest.mark.parametrize(
        "connection",
        [
            "postgres://me:s%40cret@127.0.0.1:1/db?warehouse=s3%3A%2F%2Fbucket%2Fwh",
            (
                '{"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "login": "me", "password": "s@cret", "schema": "db", '
                '"extra": {"warehouse": "s3://bucket/wh"}}'
            ),
        ],
    )
    def test_an_airflow_connection_says_where_a_catalog_is(
        self, load: Callable[[str], CatalogManager], monkeypatch: pytest.MonkeyPatch, connection: str
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_DB", connection)
        manager = load("catalogs: [{name: lake, conn-id: lake_db}]")
        with pytest.raises(CatalogUnavailableError, match=r"Cannot reach postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/db"):
            manager.get("lake")

    def test_a_parameter_wins_over_the_connection(
        self, load: Callable[[str], CatalogManager], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_DB", "postgres://me@127.0.0.1:1/db")
        manager = load("catalogs: [{name: lake, conn-id: lake_db, connection-params: {url: 'sqlite:///lake.db'}}]")
        assert manager.get("lake").list_databases() == ["default"]
        assert (tmp_path / "project" / "lake.db").is_file()
        manager.close()

    def test_a_connection_that_is_no_connection_does_not_show_its_password(
        self, load: Callable[[str], CatalogManager], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_DB", "postgres://me:secret@127.0.0.1:port/db")
        with pytest.raises(ConfigurationError, match="AIRFLOW_CONN_LAKE_DB is neither a URI nor JSON") as raised:
            load("catalogs: [{name: lake, conn-id: lake_db}]").get("lake")
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("catalogs: [{name: a}, {name: lake, is-default: true, default-database: sales}]", ("lake", "sales")),
            ("catalogs: [{name: a}, {name: b}]", ("a", "default")),
        ],
    )
    def test_names_that_leave_out_catalog_and_database(self, tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
        (tmp_path / "catalogs.yaml").write_text(text)
        assert default_names(tmp_path / "catalogs.yaml") == expected

    def test_all_mistakes_come_at_once(self, load: Callable[[str], CatalogManager]) -> None:
        with pytest.raises(DefinitionError) as raised:
            load("catalogs:\n- {name: a, type: x}\n- {name: b, y: 1}\n- {name: c}\n- {name: c}")
        assert [str(mistake).split(".yaml:")[1][:20] for mistake in raised.value.mistakes] == [
            "2:19: catalog type '",
            "3:13: unknown key 'y",
            "5:10: catalog c is d",
        ]

    def test_keys_of_the_seed(self, load: Callable[[str], CatalogManager]) -> None:
        manager = load("""
            catalogs:
              - name: hive1
                catalog:
                  type: hive
                  is-default: true
                  default-db: sales
                  connection-params:
                    hive.metastore.uris: "thrift://127.0.0.1:1,thrift://127.0.0.1:2"
        """)
        assert str(manager.resolve("orders")) == "hive1.sales.orders"
        with pytest.raises(CatalogUnavailableError):
            manager.get("hive1")

    @pytest.mark.parametrize(("content", "mistake"), [(None, "cannot be read: No such file"), (b"\xff\xfe", "is not UTF-8 text")])
    def test_a_file_that_cannot_be_read(
        self, tmp_path: Path, defaults: CatalogDefaults, content: bytes | None, mistake: str
    ) -> None:
        if content is not None:
            (tmp_path / "catalogs.yaml").write_bytes(content)
        with pytest.raises(DefinitionError) as raised:
            load_catalogs(tmp_path / "catalogs.yaml", defaults)
        assert str(raised.value).startswith(f"{tmp_path}/catalogs.yaml:1:1: {mistake}")
