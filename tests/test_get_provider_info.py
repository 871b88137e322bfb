"""The provider info is what Airflow's own schema allows, and names things that exist."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from airflow.plugins_manager import AirflowPlugin

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.get_provider_info import get_provider_info
from airflow_dynamic_tables.operators.dynamic_table_refresh import DynamicTableRefreshOperator

ROOT = Path(__file__).parents[1]
INFO = get_provider_info()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_airflow_accepts_it() -> None:
    jsonschema.validate(INFO, json.loads((files("airflow") / "provider_info.schema.json").read_text()))


def test_it_has_what_airflow_asks_of_its_own_providers() -> None:
    """The schema of ``provider.yaml`` is stricter: it knows each key, and demands a page of each integration."""
    added = {"state": "ready", "source-date-epoch": 0, "versions": [PROJECT["version"]]}
    logos = [{**each, "logo": each["logo"].removeprefix("/docs")} for each in INFO["integrations"]]
    schema = json.loads((files("airflow") / "provider.yaml.schema.json").read_text())
    jsonschema.validate({**INFO, **added, "integrations": logos}, schema)


def test_every_page_and_logo_of_it_exists() -> None:
    (integration,) = INFO["integrations"]
    paths = [*integration["how-to-guide"], integration["logo"]]
    assert [path for path in paths if not (ROOT / path.lstrip("/")).is_file()] == []
    assert integration["external-doc-url"] == PROJECT["urls"]["Documentation"]


def test_options_are_of_this_version_or_an_earlier_one() -> None:
    added = {option["version_added"] for option in INFO["config"]["dynamic_tables"]["options"].values()}
    assert added <= set(VERSIONS)


def test_the_version_is_the_newest_of_the_changelog() -> None:
    assert VERSIONS[0] == PROJECT["version"]


def test_the_plugin_is_registered_once() -> None:
    """By its entry point. Airflow reports a plugin that the info names as well as an import error."""
    assert "plugins" not in INFO


def test_it_carries_the_name_of_the_distribution() -> None:
    assert INFO["package-name"] == PROJECT["name"]


def test_the_entry_point_leads_to_it() -> None:
    module, _, function = PROJECT["entry-points"]["apache_airflow_provider"]["provider_info"].partition(":")
    assert getattr(import_module(module), function)() == INFO


def test_airflow_finds_the_plugin() -> None:
    module, _, name = PROJECT["entry-points"]["airflow.plugins"]["dynamic_tables"].partition(":")
    plugin = getattr(import_module(module), name)
    assert (issubclass(plugin, AirflowPlugin), plugin.name) == (True, "dynamic_tables")
    assert [listener.on_dag_run_success for listener in plugin.listeners], "or Airflow calls nothing"


@pytest.mark.parametrize("section", ["operators", "sensors", "hooks", "triggers"])
def test_every_module_can_be_imported(section: str) -> None:
    for name in INFO[section][0]["python-modules"]:
        assert import_module(name).__doc__


def test_every_link_is_one_of_the_operators() -> None:
    links = {f"{type(link).__module__}.{type(link).__name__}" for link in DynamicTableRefreshOperator.operator_extra_links}
    assert links == set(INFO["extra-links"])


def test_the_connection_type_is_the_hooks() -> None:
    (connection_type,) = INFO["connection-types"]
    module, _, name = connection_type["hook-class-name"].rpartition(".")
    hook = getattr(import_module(module), name)
    assert (hook.conn_type, hook.hook_name) == (connection_type["connection-type"], connection_type["hook-name"])


def test_the_scheme_of_assets_has_a_converter_to_datasets() -> None:
    (uris,) = INFO["asset-uris"]
    module, _, name = uris["to_openlineage_converter"].rpartition(".")
    assert callable(getattr(import_module(module), name))
    assert uris["schemes"] == [dynamic_table_asset("lake.sales.daily").uri.partition(":")[0]]


def test_every_option_is_text_with_a_default_that_fits_its_type() -> None:
    for option in INFO["config"]["dynamic_tables"]["options"].values():
        convert = {"string": str, "integer": int, "float": float, "boolean": {"True": True, "False": False}.get}[option["type"]]
        assert convert(option["default"]) is not None
