"""Whether a Spark Connect server answers: one call of its protocol, with a limit of time."""

from __future__ import annotations

import re
from uuid import uuid4

from airflow_dynamic_tables.clients.processes import Process
from airflow_dynamic_tables.exceptions import MissingExtraError
from airflow_dynamic_tables.runners.local.folder import Server, ServerFolder
from airflow_dynamic_tables.runners.local.relay import relayed

_SERVICE = "/spark.connect.SparkConnectService"
_USER = "dynamic-tables"
_VERSION = re.compile(rb"\n(?P<length>.)(?P<text>\d+\.\d+\.[\w.-]+)", re.DOTALL)
"""The field of the answer that holds the version: its length, and the text, after which the next field begins."""


def answered_version(folder: ServerFolder, server: Server, process: Process | None, seconds: float) -> str | None:
    """Spark's version, as a server says it; ``None`` when its process does not answer in time.

    The answer takes a session, so the server can still make one. No library of Spark is needed, and none of its start-up time.

    :param process: of the server; an answer from any other process counts as none, and gets no token.
    :raises MissingExtraError: without gRPC, which PySpark's client brings.
    """
    try:
        import grpc
    except ImportError:
        raise MissingExtraError("pyspark") from None

    session, user = _field(1, str(uuid4()).encode()), _field(2, _field(1, _USER.encode()))
    if process is None:
        return None
    metadata = (("authorization", f"Bearer {server.token}"),)
    with relayed(folder.path, process, server.port) as (target, _), grpc.insecure_channel(target) as channel:
        try:
            answer: bytes = channel.unary_unary(f"{_SERVICE}/AnalyzePlan")(
                session + user + _field(10, b""), timeout=seconds, metadata=metadata
            )
            channel.unary_unary(f"{_SERVICE}/ReleaseSession")(session + user, timeout=seconds, metadata=metadata)
        except grpc.RpcError:
            return None
    version = _VERSION.search(answer)
    return version["text"][: version["length"][0]].decode() if version else ""


def _field(number: int, content: bytes) -> bytes:
    """A short text or message as a field of a message in protocol buffers."""
    return bytes((number << 3 | 2, len(content))) + content
