"""Conversion of an Airflow connection of type ``kafka`` to options of Spark's Kafka connector."""

from __future__ import annotations

import unicodedata

from airflow_dynamic_tables.clients.connections import Connection
from airflow_dynamic_tables.core.mistakes import shown
from airflow_dynamic_tables.exceptions import ConfigurationError

SERVERS = "bootstrap.servers"
_PROTOCOL = "security.protocol"
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
_USER = "sasl.username"
_SECRET = "sasl.password"
_AUTHORITY = "ssl.ca.location"

_KNOWN = (SERVERS, _PROTOCOL, *_MECHANISMS, _USER, _SECRET, _AUTHORITY)

_OF_ACCESS = ("security.", "sasl.", "ssl.", "oauth")
"""Prefixes of settings for access control; others tune the client for which the connection was written."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def connector_options(conn_id: str, connection: Connection) -> dict[str, str]:
    """Options of Spark's connector, including secrets, from a connection whose ``extra`` is the configuration of librdkafka.

    :raises ConfigurationError: when it has no servers or an unsupported access setting; the message contains no values.
    """
    said = connection.extra
    if not said.get(SERVERS):
        raise ConfigurationError(f"Connection {conn_id!r} has no {SERVERS!r} in its extra, for example broker-1:9092.")
    if unknown := [name for name in said if name.startswith(_OF_ACCESS) and name not in _KNOWN]:
        raise ConfigurationError(
            f"Connection {conn_id!r} has {shown(unknown[0])!r} in its extra, which is not known here; known of access are "
            f"{', '.join(_KNOWN[1:])}."
        )
    options = {f"kafka.{name}": said[name] for name in (SERVERS, _PROTOCOL) if said.get(name)}
    if authority := said.get(_AUTHORITY):
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": authority}
    return options | _login(conn_id, connection)


def _login(conn_id: str, connection: Connection) -> dict[str, str]:
    said = connection.extra
    mechanism = next((said[name] for name in _MECHANISMS if said.get(name)), None)
    is_asked_for = said.get(_PROTOCOL, "").upper().startswith("SASL_")
    if not is_asked_for and mechanism is None and not said.get(_USER):
        return {}
    if not is_asked_for or mechanism not in _LOGIN_MODULES or not said.get(_USER) or not said.get(_SECRET):
        raise ConfigurationError(
            f"Connection {conn_id!r} needs for a login in its extra: {_PROTOCOL} SASL_SSL or SASL_PLAINTEXT, {_MECHANISMS[0]} "
            f"{' or '.join(_LOGIN_MODULES)}, {_USER} and {_SECRET}."
        )
    user = _quoted(conn_id, said[_USER])
    secret = _quoted(conn_id, said[_SECRET])
    jaas = f"{_LOGIN_MODULES[mechanism]} required username={user} password={secret};"
    return {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas}


def _quoted(conn_id: str, text: str) -> str:
    """Quote a text for JAAS."""
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise ConfigurationError(f"Connection {conn_id!r} has a control character in its {_USER} or {_SECRET}.")
    escaped = text.replace("\\", r"\\").replace('"', r"\"")
    return f'"{escaped}"'
