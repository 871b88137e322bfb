"""Secrets that have a name, and passwords in URLs, are hidden in whatever text; the rest of it stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    "password: hunter2": "password: ***",
    "login failed, password: hunter host: db": "login failed, password: *** host: db",
    "password: 'a b' user: me": "password: *** user: me",
    "password='it''s QPW' host=h": "password=*** host=h",
    "password='QPW with no end": "password=***",
    "password=QPW&QPW2 host=h": "password=*** host=h",
    "(fs.s3a.secret.key -> QPW, a -> b)": "(fs.s3a.secret.key -> *** a -> b)",
    "password => 'QPW', user => 'me'": "password => ***, user => 'me'",
    "(fs.s3a.secret.key,QPW) (a,b)": "(fs.s3a.secret.key,***) (a,b)",
    "('password', 'Q PW')": "('password', ***)",
    "Authorization: Bearer QPW": "Authorization: ***",
    "-H 'Authorization: Basic UVBX' -H 'X: y'": "-H 'Authorization: ***' -H 'X: y'",
    "{'Authorization': 'Bearer QPW', 'a': 1}": "{'Authorization': ***, 'a': 1}",
    "sent Bearer eyJhbGci.eyJzdWIi.QPW-_ to it": "sent Bearer *** to it",
    "psql --password QPW --host h": "psql --password *** --host h",
    "--db-password 'Q PW' --host h": "--db-password *** --host h",
    "https://ghp_QPW@github.example/x": "https://***@github.example/x",
    "https://h/x?X-Amz-Credential=A%2Fb&X-Amz-Signature=QPW&x=1": "https://h/x?X-Amz-Credential=***&X-Amz-Signature=***&x=1",
    "https://h/x?sv=1&sig=QPW%3D&se=2": "https://h/x?sv=1&sig=***&se=2",
    "SharedAccessSignature sig=QPW": "SharedAccessSignature sig=***",
    "AccountName=a;AccountKey=QPW==;EndpointSuffix=x": "AccountName=a;AccountKey=***",
    "ALTER ROLE me PASSWORD 'it''s QPW' LOGIN": "ALTER ROLE me PASSWORD *** LOGIN",
    "<name>fs.s3a.secret.key</name>\n<value>QPW</value>": "<name>fs.s3a.secret.key</name>\n<value>***</value>",
    "<password>QPW</password>": "<password>***</password>",
    r'"{\"password\": \"QPW\", \"n\": 1}"': r'"{\"password\": ***, \"n\": 1}"',
    "-----BEGIN RSA PRIVATE KEY-----\nQPW\n-----END RSA PRIVATE KEY-----": (
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----"
    ),
    "PATH=/bin\nMY_DB_PASSWORD=QPW\nHOME=/root": "PATH=/bin\nMY_DB_PASSWORD=***\nHOME=/root",
    "db.password:QPW": "db.password:***",
    "GITHUB_TOKEN=QPW MY_OWN_TOKEN=QPW x": "GITHUB_TOKEN=*** MY_OWN_TOKEN=*** x",
    '{"id_token": "QPW", "refresh_token":"QPW"}': '{"id_token": ***, "refresh_token":***}',
    "https://h/x?a=1&token=QPW&b=2": "https://h/x?a=1&token=***&b=2",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.QPW-QPW_1 sent": "jwt *** sent",
    "Set-Cookie: _token=QPW; Path=/\nnext": "Set-Cookie: ***\nnext",
    "-H 'Cookie: session=QPW; b=QPW' http://h": "-H 'Cookie: ***' http://h",
    'Authorization: Digest username="me", response="QPW"\nnext': "Authorization: ***\nnext",
    'CREATE USER me IDENTIFIED BY "QPW";': "CREATE USER me IDENTIFIED BY ***;",
    "CREATE USER me IDENTIFIED BY QPW LOGIN": "CREATE USER me IDENTIFIED BY *** LOGIN",
    "AIRFLOW__CORE__FERNET_KEY=QPW fernet_key: QPW": "AIRFLOW__CORE__FERNET_KEY=*** fernet_key: ***",
    '<property name="db.password" value="QPW"/>': '<property name="db.password" value=***/>',
}
SHOWN = [
    'FATAL: password authentication failed for user "me"',
    "an option 'password': remove it",
    "a password: it is told by the connection",
    "Stage token=manual__2024 of lake.sales.t",
    "thrift://127.0.0.1:9083 does not answer, mail to ops@example.org",
    "file:///srv/warehouse/lake/sales/t-1/ds=2024-01-01T00:00/part.parquet",
    "NoCredentialsError: Unable to locate credentials",
    "DefaultCredentialsError: File /x/y.json was not found.",
    "CredentialRetrievalError: 403 Forbidden",
    "options take no password: give the login to the connection",
    "unknown keys 'password', 'user'; did you mean 'passfile'?",
    "body.password: is required; add it",
    "dynamic-tables serve --token-file ~/token --port 8097",
    "--password is not taken: use --password-file instead",
    "dynamic-tables publish lake.sales.t --token manual__2024-01-01",
    "a cookie: it is sent by browsers; the Cookie: header is missing",
    "the table is identified by its uuid, and refresh_token_count = 3 in dt_tokens",
    "DYNAMIC_TABLES_TOKEN is not set; --token manual__2024 at https://h/x?tokens=3",
    "the signature of f(x) changed; the token: manual__2024",
    "git clone ssh://git@github.example/x.git, hdfs://me@nn:8020/x, abfss://box@account.dfs.core.windows.net/x",
    "https://docs.example.org/@me/x?page=1",
    "catalogs.yaml:5:7: 'password' sounds like a secret; see docs/security.md",
    "airflow.secrets.metastore:Backend cannot be imported",
    "authorization: denied by policy",
    "the server does not grant that to this credential: Fault: by order of a test",
    "write 'credential: <id>:<secret>' instead",
    "Bearer authentication is required",
    "SELECT secret_level, pass FROM t WHERE access_keys > 3",
]

SPELLINGS = [
    "password={}",
    "password = {} user=me",
    "host=h password={} port=1",
    "jdbc:postgresql://h/d?user=me&password={}&ssl=true",
    "postgresql://me:{}@h/d",
    "https://{}@h/d",
    "password: {}",
    "  password: {}\n  user: me",
    'password: "{}"',
    '{{"password":"{}","n":1}}',
    "{{'MY_PASSWORD': '{}', 'n': 1}}",
    '"{{\\"api_key\\": \\"{}\\"}}"',
    "Map(fs.s3a.secret.key -> {}, a -> b)",
    "(spark.hadoop.fs.s3a.secret.key,{})",
    "Authorization: Bearer {}",
    "'authorization': 'Basic {}'",
    "--password {} --host h",
    "--password={}",
    "?X-Amz-Signature={}&x=1",
    "SharedAccessSignature=sr=x&sig={}",
    "export AWS_SECRET_ACCESS_KEY={}",
    "PGPASSWORD={} psql",
    "fs.azure.account.key.x.net={}",
    "CREATE USER me PASSWORD '{}'",
    "<value>x</value><client_secret>{}</client_secret>",
    "spring.datasource.password:{}",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_secrets_are_hidden(text: str) -> None:
    assert without_secrets(text) == HIDDEN[text]
    assert without_secrets(HIDDEN[text]) == HIDDEN[text]


@pytest.mark.parametrize("spelling", SPELLINGS)
@settings(max_examples=25)
@given(secret=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9!$%*+.~^]{2,20}[0-9]", fullmatch=True))
def test_a_secret_is_hidden_in_every_spelling(spelling: str, secret: str) -> None:
    for text in (spelling.format(secret), f"It failed: {spelling.format(secret)}", f"{spelling.format(secret)}\nand more of it"):
        hidden = without_secrets(text)
        assert secret not in hidden.replace("***", ""), hidden
        assert without_secrets(hidden) == hidden


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


@pytest.mark.sampled
@pytest.mark.parametrize(
    "part",
    [
        "secret",
        "a://b:",
        "password=",
        'password="',
        "aaaaaa",
        '"',
        "password: ",
        "--password ",
        "<password>",
        "https://",
        "('password',",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "authorization=",
        "cookie: a=",
        "eyJaaaaaaaa.eyJaaaa",
        "a://h?a=1&",
        "name='password' ",
        "A_TOKEN",
        "'",
    ],
)
def test_megabytes_take_seconds(part: str) -> None:
    start = time.process_time()
    without_secrets(part * (200_000 // len(part)))
    assert time.process_time() - start < 5
