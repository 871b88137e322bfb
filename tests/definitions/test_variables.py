"""``${NAME}`` and ``{{ var… }}`` in definitions: what differs between deployments."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_dynamic_tables.core.refresh.spark_settings import RENDERED, SparkSettings
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema
from airflow_dynamic_tables.definitions.loader import load_definitions, load_sound_definitions
from airflow_dynamic_tables.definitions.model import Callback, Conventions, Definitions
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.project import open_project

OPEN = Conventions(variables=("*",))

TABLE = "dynamic_tables:\n  - name: t\n    query: SELECT '${A}', '$${A}' AS a\n    freshness: 1 day\n"


def _load(folder: Path, text: str, cache: Cache | None = None) -> Definitions:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    return load_definitions(folder, conventions=OPEN, cache=cache or Cache(None))


def _mistakes(folder: Path, text: str, conventions: Conventions = OPEN) -> list[str]:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    definitions, mistakes = load_sound_definitions(folder, conventions=conventions, cache=Cache(None))
    assert not definitions.tables
    return [f"{mistake.line}:{mistake.column}: {mistake.message}" for mistake in mistakes]


def test_values_are_read_as_if_they_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"A": "a", "RETRIES": "3", "WAIT": "yes", "DELAY": "90 seconds", "EMPTY": "", "CATALOG": "lake_dev"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("UNSET", raising=False)
    head = """\
defaults: {catalog: "${CATALOG}", tags: ["env-${A}", "${A}${UNSET:-z}"], spark: {conn_id: "spark_${UNSET:-local}"}}
sources: [{name: raw.s, format: csv, path: "s3://${A}-bucket/x", options: {sep: "${UNSET:-;}"}}]
"""
    more = """\
    comment: costs ${A}
    retries: ${RETRIES}
    retry_delay: ${DELAY}
    depends_on_past: ${WAIT}
    pool: "${EMPTY:-small}"
    owner: '${WAIT}'
    spark: {executor_cores: "${RETRIES}"}
"""
    definitions = _load(tmp_path, head + TABLE + more)
    (table,) = definitions.tables.values()
    (source,) = definitions.sources.values()
    assert (str(table.identifier), str(source.identifier)) == ("lake_dev.default.t", "lake_dev.raw.s")
    assert (table.retries, table.retry_delay, table.depends_on_past) == (3, timedelta(seconds=90), True)
    assert (table.pool, table.owner, table.tags) == ("small", "yes", ("env-a", "az"))
    assert (table.spark.conn_id, table.spark.executor_cores) == ("spark_local", 3)
    assert (source.path, source.options) == ("s3://a-bucket/x", {"sep": ";"})
    # What a table is does not depend on where it runs.
    assert table.query == "SELECT '${A}', '$${A}' AS a"
    assert table.comment == "costs ${A}"


def test_only_the_exact_form_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "b: [1] retries: 9} ${A} #")
    conf = {
        "a": "${spark.home}/x",
        "b": "$SPARK_HOME/${env:HOME}:${sys:user.name}",
        "c": "kill $$ ${9} ${ A } ${A-b}",
        "d": "$${A} $${A:-x}",
        "e": "<${A}>",
        "f": "{{ds}} {{HADOOP_CONF_DIR}}",
    }
    lines = "".join(f"        {key}: '{value}'\n" for key, value in conf.items())
    (table,) = _load(tmp_path, TABLE + f"    spark:\n      conf:\n{lines}").tables.values()
    assert table.spark.conf == {**conf, "d": "${A} ${A:-x}", "e": "<b: [1] retries: 9} ${A} #>"}
    assert table.retries is None


def test_callbacks_take_variables_and_keep_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "me")
    more = "    on_failure_callback: {notifier: 'm:N', arguments: {to: ['${A}@example.org'], subject: '{{ var.value.x }}'}}\n"
    (table,) = _load(tmp_path, TABLE + more).tables.values()
    assert table.on_failure_callback == (Callback("m:N", {"to": ["me@example.org"], "subject": "{{ var.value.x }}"}),)


NOT_SET = (
    "there is no environment variable NONE; set it wherever definitions are read (DAG processor, workers, command line), give a "
    "default as ${NONE:-text}, or write $${NONE} for the text itself"
)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("pool: a${NONE}", f"5:12: {NOT_SET}"),
        ("spark: {conf: {x: '${NONE}'}}", f"5:24: {NOT_SET}"),
        ("retries: ${WORD}", "5:14: 'retries' must be a whole number, not 'many'"),
        ("depends_on_past: '${YES}'", "5:22: 'yes' is neither true nor false"),
        ("pool: ${YES}", "5:11: 'pool' must be text, not true; put it in quotes"),
        ("pool: ${EMPTY}", "5:11: 'pool' has no value; give one or remove the key"),
        ("pool: '${EMPTY}'", "5:11: 'pool' must not be empty"),
        ("pool: ${WORD:-${YES}}", "5:11: a default such as ${WORD:-text} ends with '}' and holds no braces"),
        ("pool: ${LINES}", "5:11: the environment variable LINES holds a character that is not printable"),
        (
            "spark: {conf: {'${WORD}.x': 1}}",
            "5:20: '${WORD}.x' is a key, and only values take variables of the environment",
        ),
        ("query_file: ${WORD}.sql", "5:17: 'query_file' takes no variable of the environment; settings and paths do"),
        ("partitioned_by: ['${WORD}']", "5:22: 'partitioned_by' takes no variable of the environment; settings and paths do"),
        (
            "spark: {conf: {app.x: '${DB_PASSWORD}'}}",
            "5:28: 'app.x' is shown to everybody, and DB_PASSWORD sounds like a secret; see docs/security.md",
        ),
    ],
)
def test_mistakes_stand_where_the_variable_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, mistake: str) -> None:
    monkeypatch.delenv("NONE", raising=False)
    for name, value in {"WORD": "many", "YES": "yes", "EMPTY": "", "LINES": "a\nb", "DB_PASSWORD": "hunter2"}.items():
        monkeypatch.setenv(name, value)
    told = _mistakes(tmp_path, TABLE + f"    {line}\n")
    assert mistake in told
    assert "hunter2" not in "".join(told)
    if "query_file" not in line and "partitioned_by" not in line:
        assert told == [mistake]


@pytest.mark.parametrize(
    "name",
    [
        *("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_CRM", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "DYNAMIC_TABLES_DATABASE_URL"),
        *("MY_DB_PASS", "SFTP_PW", "GITHUB_PAT", "AWS_SECRET_ACCESS_KEY", "DYNAMIC_TABLES_TOKEN", "PATH", "NEVER_SET:-x"),
    ],
)
def test_a_variable_that_is_not_allowed_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bare = name.partition(":")[0]
    if bare == name:
        monkeypatch.setenv(name, "fernet-or-password")
    for line, place in (
        (f"tags: ['x-${{{name}}}']", "5:15"),
        (f"owner: '${{{name}}}'", "5:13"),
        (f"spark: {{conf: {{x: '${{{name}}}'}}}}", "5:24"),
    ):
        for conventions, allowed in ((Conventions(), "none"), (Conventions(variables=("STAGE", "SALES_*")), "STAGE, SALES_*")):
            (told,) = _mistakes(tmp_path, f"{TABLE}    {line}\n", conventions)
            assert told == (
                f"{place}: definitions may not read the environment variable {bare}; to allow it, add its name or a pattern to "
                f"DYNAMIC_TABLES_VARIABLES wherever definitions are read (DAG processor, workers, command line); allowed now: "
                f"{allowed}"
            )


@pytest.mark.parametrize(
    "name", ["AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_CRM", "MY_DB_PASS", "SFTP_PW", "GITHUB_PAT", "JWT_SECRET"]
)
def test_a_secret_is_refused_where_it_would_be_shown_also_when_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "hunter2")
    (told,) = _mistakes(tmp_path, f"{TABLE}    owner: '${{{name}}}'\n")
    assert told == f"5:13: 'owner' is shown to everybody, and {name} sounds like a secret; see docs/security.md"
    more = f"    spark: {{conf: {{spark.hadoop.fs.s3a.secret.key: '${{{name}}}'}}}}\n"
    (table,) = _load(tmp_path, TABLE + more).tables.values()
    assert list(table.spark.conf.values()) == ["hunter2"]


@pytest.mark.parametrize("value", ["postgresql://ann:hunter2@db/x", "host=db password=hunter2"])
def test_a_value_with_a_password_is_refused_where_it_would_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SALES_DATABASE", value)
    (told,) = _mistakes(tmp_path, TABLE + "    tags: ['${SALES_DATABASE}']\n")
    assert told == "5:13: 'tags' is shown to everybody, and the value of SALES_DATABASE holds a password; see docs/security.md"


def test_the_environment_says_which_variables_definitions_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / "a.yaml").write_text(TABLE + "    owner: '${SALES_OWNER}'\n")
    monkeypatch.setenv("SALES_OWNER", "ann")
    environ = {"DYNAMIC_TABLES_CACHE": str(cache)}
    for allowed, is_allowed in (
        ("STAGE, SALES_*", True),
        ("STAGE", False),
        ("SALES_OWNER", True),
        ("sales_*", False),
        ("", False),
    ):
        conventions = open_project(str(folder), environ=environ | {"DYNAMIC_TABLES_VARIABLES": allowed}).conventions
        definitions, told = load_sound_definitions(folder, conventions=conventions, cache=Cache(cache, settled=timedelta(0)))
        assert [table.owner for table in definitions.tables.values()] == (["ann"] if is_allowed else [])
        assert len(told) == (not is_allowed)
    for wrong in ("A B", "${A}", "a-b", "9", "[A-Z]"):
        with pytest.raises(ConfigurationError, match=r"^DYNAMIC_TABLES_VARIABLES: '.*' is no name of a variable"):
            open_project(str(folder), environ={"DYNAMIC_TABLES_VARIABLES": wrong})


def test_a_variable_in_a_name_is_refused(tmp_path: Path) -> None:
    text = "dynamic_tables: [{name: 't_${A}', freshness: 1 day, query: SELECT 1 AS a}]\n"
    assert _mistakes(tmp_path, text) == ["1:25: 'name' takes no variable of the environment; settings and paths do"]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("pool: '{{ var.value.pool }}'", "5:11: Airflow renders no template in 'pool', only in these texts of 'spark': conf, "),
        ("comment: '{{var.json.x}}'", "5:14: Airflow renders no template in 'comment', only "),
        ("spark: {conn_id: '{{ conn.x.host }}'}", "5:22: Airflow renders no template in 'conn_id', only "),
        ("spark: {executor_memory: '{{ var.value.m }}'}", "5:30: Airflow renders no template in 'executor_memory', only "),
        (
            "spark: {conf: {spark.sql.ansi.enabled: '{{ var.value.a }}'}}",
            "5:44: 'spark.sql.ansi.enabled' decides which rows there are, and is planned before Airflow renders it; ",
        ),
    ],
)
def test_templates_that_nobody_would_render_are_refused(tmp_path: Path, line: str, mistake: str) -> None:
    (told,) = _mistakes(tmp_path, TABLE + f"    {line}\n")
    assert told.startswith(mistake)
    assert told.endswith("write ${NAME} for a variable of the environment")


def test_templates_stay_where_airflow_renders_them(tmp_path: Path) -> None:
    more = "    spark: {conf: {app.key: '{{ conn.lake.password }}'}, env_vars: {X: '{{ var.value.x }}'}, jars: '{{ var.x.j }}'}\n"
    (table,) = _load(tmp_path, TABLE + more).tables.values()
    assert table.spark.conf == {"app.key": "{{ conn.lake.password }}"}
    ours = {setting.name for setting in fields(SparkSettings)}
    assert set(RENDERED) == ours & set(SparkSubmitOperator.template_fields)


def test_the_cache_notices_another_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache", settled=timedelta(0))
    folder = tmp_path / "definitions"
    folder.mkdir()

    def pool() -> str | None:
        return next(iter(load_definitions(folder, conventions=OPEN, cache=cache).tables.values())).pool

    (folder / "a.yaml").write_text(TABLE + "    pool: ${POOL:-none}\n")
    for value in ("one", "two", None, "one"):
        if value is None:
            monkeypatch.delenv("POOL")
        else:
            monkeypatch.setenv("POOL", value)
        assert pool() == (value or "none")
        assert pool() == (value or "none")


def test_the_schema_takes_variables_where_values_do() -> None:
    settings = {
        "retries": "${RETRIES}",
        "depends_on_past": "${WAIT}",
        "weight_rule": "${RULE:-upstream}",
        "start_date": "${START}",
    }
    entry = {"name": "t", "query": "SELECT 1", **settings, "spark": {"executor_cores": "${CORES}", "deploy_mode": "${MODE}"}}
    jsonschema.validate({"defaults": settings, "dynamic_tables": [entry]}, definitions_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"defaults": {"retries": "often"}}, definitions_schema())
