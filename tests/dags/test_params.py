"""Params of the definition in a DAG: beside those of every refresh, typed, and in no query."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from airflow_dynamic_tables.dag_factory import build_dag
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.exceptions import DefinitionError

TEXT = """\
defaults: {params: {region: eu, dry: true, mail: {title: Whom to tell}}}
dynamic_tables:
  - name: t
    freshness: 1 day
    query: SELECT '{x}' AS a
    params:
      region: {default: us, choices: [us, eu], description: Where the alert goes.}
      level: {type: integer, default: 3}
      share: {type: number}
    spark: {conf: {app.region: '{{ params.region }}'}}
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Definitions:
    (tmp_path / "a.yaml").write_text(TEXT)
    return load_definitions(tmp_path, cache=Cache(None))


def test_params_of_the_definition_stand_in_the_form_beside_ours(definitions: Definitions) -> None:
    (table,) = definitions.tables.values()
    dag = build_dag(table, definitions)
    assert dag.params.dump() == {
        "schedule_time": None,
        "partition": None,
        "full_refresh": False,
        "even_if_suspended": False,
        "do_not_wait": False,
        "region": "us",
        "dry": True,
        "mail": None,
        "level": 3,
        "share": None,
    }
    dag.params.validate()
    region, mail = dag.params.get_param("region"), dag.params.get_param("mail")
    assert (region.schema["type"], region.schema["enum"]) == ("string", ["us", "eu"])
    assert region.description == "Where the alert goes."
    assert (mail.schema["type"], mail.schema["title"]) == (["null", "string"], "Whom to tell")
    kept = DagSerialization.to_dict(dag)["dag"]["params"]
    assert [name for name, _ in kept] == [
        "schedule_time",
        "partition",
        "full_refresh",
        "even_if_suspended",
        "do_not_wait",
        "region",
        "dry",
        "mail",
        "level",
        "share",
    ]


@pytest.mark.parametrize(("name", "value"), [("region", "de"), ("level", "high"), ("level", None), ("dry", "x")])
def test_airflow_refuses_values_of_another_kind(definitions: Definitions, name: str, value: object) -> None:
    (table,) = definitions.tables.values()
    with pytest.raises(ParamValidationError):
        build_dag(table, definitions).params.get_param(name).resolve(value)


@pytest.mark.parametrize(
    ("params", "mistake"),
    [
        ("{partition: x}", "5:25: 'partition' is what every refresh can be asked for; choose another name"),
        ("{a b: x}", "5:19: 'a b' is no name for a param: it is shown, and callbacks and templates say params.a b"),
        (
            "{pwd: x}",
            "5:19: 'pwd' is no name for a param: it is shown, and callbacks and templates say params.pwd",
        ),
        ("{n: {type: integer, default: x}}", "5:17: 'x' is no integer"),
        ("{n: {type: number, default: nan}}", "5:17: 'nan' is no number"),
        ("{n: {choices: [a], default: b}}", "5:17: the default 'b' is none of the choices"),
        ("{n: {defualt: 3}}", "5:18: unknown key 'defualt'; did you mean 'default'?"),
    ],
)
def test_params_that_cannot_be_are_mistakes(tmp_path: Path, params: str, mistake: str) -> None:
    (tmp_path / "a.yaml").write_text(
        f"dynamic_tables:\n  - name: t\n    freshness: 1 day\n    query: SELECT 1 AS a\n    params: {params}\n"
    )
    with pytest.raises(DefinitionError) as caught:
        load_definitions(tmp_path, cache=Cache(None))
    assert str(caught.value) == f"{tmp_path / 'a.yaml'}:{mistake}"


def test_the_schema_takes_both_forms() -> None:
    jsonschema.validate(yaml.safe_load(TEXT), definitions_schema())
    for wrong in ([1], {"defualt": 1}, {"type": "int"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"defaults": {"params": {"n": wrong}}}, definitions_schema())
