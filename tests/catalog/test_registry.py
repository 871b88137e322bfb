"""The types of catalogs: a type is one line, and nothing of it is imported before somebody has such a catalog."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_dynamic_tables.catalog.base import CatalogDefaults, CatalogEntry, ReadableCatalog
from airflow_dynamic_tables.catalog.file import CATALOG_TYPES, CatalogType, embedded_catalogs
from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.exceptions import ConfigurationError, MissingExtraError


@pytest.mark.parametrize("name", CATALOG_TYPES)
def test_every_type_is_a_catalog(name: str) -> None:
    catalog = CATALOG_TYPES[name].load()
    assert issubclass(catalog, ReadableCatalog)
    assert catalog.__name__ == f"{name.capitalize()}Catalog"
    assert set(CATALOG_TYPES[name].aliases.values()) <= set(CATALOG_TYPES[name].params)


def test_the_registry_imports_no_library_of_a_type() -> None:
    code = """
import sys
import airflow_dynamic_tables.catalog.file
print(sorted({"sqlalchemy", "pyiceberg", "thrift", "hive_metastore", "psycopg"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_library_that_is_missing_names_its_extra() -> None:
    code = """
import sys
sys.modules["hive_metastore"] = None  # as if it were not installed
from airflow_dynamic_tables.catalog.file import CATALOG_TYPES
CATALOG_TYPES["hive"].load()
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert loaded.stderr.splitlines()[-1].endswith(str(MissingExtraError("hive")))
    with pytest.raises(ModuleNotFoundError):
        CatalogType("nowhere:Catalog").load()


def test_a_parameter_that_a_type_needs() -> None:
    assert CatalogEntry("lake", params={"uri": "thrift://a"}).required("uri") == "thrift://a"
    with pytest.raises(ConfigurationError, match="needs connection parameter 'uri', or a 'conn-id' whose connection has a host"):
        CatalogEntry("lake").required("uri")


def test_the_name_of_an_embedded_catalog_does_not_leave_the_warehouse() -> None:
    catalogs = embedded_catalogs(CatalogDefaults("sqlite:////nowhere/state.db", "file:///srv/warehouse"))
    catalog = catalogs.unopened("../../x")
    assert isinstance(catalog, SqlCatalog)
    assert catalog.warehouse == "file:///srv/warehouse/..%2F..%2Fx"
    for name in ("..", "a\nb", "a\u202eb", "x" * 255):
        with pytest.raises(ConfigurationError, match="The name of a catalog is wrong"):
            catalogs.unopened(name)
