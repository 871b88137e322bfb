"""Secrets that have a name, and passwords in URLs, are hidden in whatever text; the rest of it stays."""

from __future__ import annotations

import time

import pytest

from airflow_dynamic_tables.exceptions import DynamicTableError, JobFailedError
from airflow_dynamic_tables.redaction import has_password, is_secret_name, without_secret_values, without_secrets

HIDDEN = {
    "postgresql://u:p@ss/word@h:1/x?password=a,b;c&user=me refused": "postgresql://u:***@h:1/x?password=***&user=me refused",
    "jdbc:postgresql://h/x?sslpassword=abc": "jdbc:postgresql://h/x?sslpassword=***",
    "conninfo host=h password=abc passfile='/a b/c' user=me": "conninfo host=h password=*** passfile=*** user=me",
    "PGPASSWORD=abc": "PGPASSWORD=***",
    '{"password": "a\\" b", "n": 1}': '{"password": ***, "n": 1}',
    "{'password': 'a b', 'n': 1}": "{'password': ***, 'n': 1}",
    "--conf spark.hadoop.fs.s3a.secret.key=abc --conf a=b": "--conf spark.hadoop.fs.s3a.secret.key=*** --conf a=b",
    "fs.azure.account.key.x.net=abc": "fs.azure.account.key.x.net=***",
    "aws_session_token = abc": "aws_session_token = ***",
    "s3://KEY:SECRET@bucket/x": "s3://KEY:***@bucket/x",
    "redis://:abc@host": "redis://:***@host",
    "--conf spark.sql.catalog.lake.token=abc --conf spark.sql.catalog.lake.header.Api=def": (
        "--conf spark.sql.catalog.lake.token=*** --conf spark.sql.catalog.lake.header.Api=***"
    ),
    "spark.sql.catalog.lake.header.Authorization=Bearer abc --conf x": "spark.sql.catalog.lake.header.Authorization=*** --conf x",
}
SHOWN = [
    'FATAL: password authentication failed for user "me"',
    "an option 'password': remove it",
    "a password: it is told by the connection",
    "Stage token=manual__2024 of lake.sales.t",
    "thrift://127.0.0.1:9083 does not answer, mail to ops@example.org",
    "file:///srv/warehouse/lake/sales/t-1/ds=2024-01-01T00:00/part.parquet",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_secrets_are_hidden(text: str) -> None:
    assert without_secrets(text) == HIDDEN[text]
    assert without_secrets(HIDDEN[text]) == HIDDEN[text]


@pytest.mark.parametrize("text", SHOWN)
def test_other_text_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_every_error_hides_them() -> None:
    assert str(DynamicTableError("Cannot reach postgresql://me:abc@h/x?sslpassword=d")) == (
        "Cannot reach postgresql://me:***@h/x?sslpassword=***"
    )
    error = JobFailedError("password=abc is wrong", log_tail="one\nfs.s3a.secret.key=abc\nthree")
    assert (str(error), error.log_tail) == ("password=*** is wrong", "one\nfs.s3a.secret.key=***\nthree")
    assert str(DynamicTableError()) == "A dynamic table could not be handled."


def test_settings() -> None:
    settings = {"spark.executor.memory": "4g", "fs.s3a.secret.key": "abc", "MY_PASSWORD": "d", "url": "a://b:c@d"}
    assert without_secret_values(settings) == {
        "spark.executor.memory": "4g",
        "fs.s3a.secret.key": "***",
        "MY_PASSWORD": "***",
        "url": "a://b:***@d",
    }


@pytest.mark.parametrize(
    "name",
    [
        *("password", "sslpassword", "PassFile", "fs.s3a.secret.key", "fs.s3a.access.key", "api_key"),
        *("token", "MY_TOKEN", "spark.sql.catalog.lake.token", "header.X-Key", "spark.sql.catalog.lake.header.Authorization"),
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["user", "sslmode", "tokenize", "spark.executor.memory", "header", "compass", "tokens", "subheader.x"]
)
def test_other_names(name: str) -> None:
    assert not is_secret_name(name)


def test_passwords_of_uris() -> None:
    assert has_password("s3://KEY:SECRET@bucket/x")
    assert not has_password("s3://bucket/password=x/a@b")


@pytest.mark.parametrize("part", ["secret", "a://b:", "password=", 'password="', "aaaaaa", '"'])
def test_megabytes_take_seconds(part: str) -> None:
    start = time.process_time()
    without_secrets(part * (500_000 // len(part)))
    assert time.process_time() - start < 10
