"""Connections of Kafka as options of Spark's connector."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.clients.kafka import connector_options
from airflow_dynamic_tables.exceptions import ConfigurationError

LOGIN = {
    "bootstrap.servers": "a:9093,b:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "me",
    "sasl.password": 'sec"r\\et',
}


def options(**changes: str) -> dict[str, str]:
    extra = {**LOGIN, **{name.replace("_", "."): value for name, value in changes.items()}}
    return connector_options("events", Connection(extra={name: value for name, value in extra.items() if value}))


def test_what_a_connection_says() -> None:
    made = options(group_id="of another client", auto_offset_reset="latest", ssl_ca_location="/etc/ca.pem")
    assert made == {
        "kafka.bootstrap.servers": "a:9093,b:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="me" password="sec\"r\\et";',
    }
    assert "ScramLoginModule" in options(sasl_mechanisms="SCRAM-SHA-512")["kafka.sasl.jaas.config"]
    plain = connector_options("events", Connection(extra={"bootstrap.servers": "a:9092"}))
    assert plain == {"kafka.bootstrap.servers": "a:9092"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"bootstrap_servers": ""}, "no 'bootstrap.servers' in its extra, for example broker-1:9092"),
        ({"security_protocol": "PLAINTEXT"}, "needs for a login in its extra: security.protocol SASL_SSL or SASL_PLAINTEXT"),
        ({"sasl_mechanisms": "OAUTHBEARER"}, "sasl.mechanism PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"sasl_password": ""}, "sasl.username and sasl.password"),
        ({"sasl_password": "sec\nret"}, "a control character in its sasl.username or sasl.password"),
        ({"ssl_key_password": "secret"}, "'ssl.key.password' in its extra, which is not known here; known of access are"),
    ],
)
def test_what_a_connection_lacks(changes: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        options(**changes)
    assert told in str(error.value)
    assert "sec" not in str(error.value).replace("security", "")
