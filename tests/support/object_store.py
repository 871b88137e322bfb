"""An S3 store on the loopback interface that refuses requests when it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from socket import SHUT_RDWR
from threading import Lock, Thread
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
import s3fs
from moto.core.exceptions import JsonRESTError
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.glue.models import glue_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug import Request, Response
from werkzeug.serving import make_server
from werkzeug.test import run_wsgi_app

BUCKET = "lake"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}
_ERROR = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{0}</Code><Message>{0}, by order of a test</Message></Error>"
_STATUS = {"SlowDown": 503, "AccessDenied": 403, "ConditionalRequestConflict": 409, "InternalError": 500}
_WRITES = ("PUT", "POST", "DELETE")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store that runs: its URL, and the environment that leads clients to it."""

    url: str
    environment: dict[str, str]

    def refuse(self, how: str) -> None:
        """Refuse all that writes: by the code of an error, as ``SlowDown``, or by cutting the ``connection``. From any process.

        With ``listing``, to list is denied, and nothing else. What begins with ``once-`` or ``after-`` is said of the next write
        alone, which is not carried out, or is.
        """
        with urlopen(f"{self.url}/_refuse/{how}") as answer:
            answer.read()

    def serve(self) -> None:
        self.refuse("nothing")


class _Refusing:
    """Moto's application, behind a door, with a Glue that compares the versions of tables, as Moto's own does not."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._how = "nothing"
        self._comparing = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        if request.path.startswith("/_refuse/"):
            self._how = request.path.rpartition("/")[2]
            return Response()(environ, start_response)
        if self._how == "listing" and "list-type" in request.args:
            return Response(_ERROR.format("AccessDenied"), 403, mimetype="application/xml")(environ, start_response)
        if request.headers.get("X-Amz-Target") == "AWSGlue.UpdateTable":
            return self._compared(environ, start_response)
        if self._how in ("nothing", "listing") or request.method not in _WRITES:
            answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer
        times, _, how = self._how.rpartition("-")
        if times:
            self._how = "nothing"
        if times == "after":
            run_wsgi_app(self._moto, environ)
        else:
            request.get_data()  # else the client does not listen yet
        if how == "connection":
            environ["werkzeug.socket"].shutdown(SHUT_RDWR)
            raise ConnectionError("by order of a test")
        return Response(_ERROR.format(how), _STATUS[how], mimetype="application/xml")(environ, start_response)

    def _compared(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = Request(environ).get_data()
        asked = json.loads(body)
        with self._comparing:
            with suppress(JsonRESTError):  # there is no such table, which Moto says
                backend = glue_backends[DEFAULT_ACCOUNT_ID]["us-east-1"]
                now = backend.get_table(asked["DatabaseName"], asked["TableInput"]["Name"]).as_dict()["VersionId"]
                if asked.get("VersionId") not in (None, now):
                    told = {"__type": "ConcurrentModificationException", "message": f"Version {now} is the current one"}
                    return Response(json.dumps(told), 400, mimetype="application/x-amz-json-1.1")(environ, start_response)
            answer: Iterable[bytes] = self._moto({**environ, "wsgi.input": BytesIO(body)}, start_response)
            return answer


@contextmanager
def running_object_store(port: int = 0) -> Iterator[ObjectStore]:
    """A store without buckets, on any port by default. One at a time: Moto keeps what it holds as long as the process runs.

    s3fs keeps its connections to it, and would take them for those to the next one.
    """
    server = make_server("127.0.0.1", port, _Refusing(), threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with urlopen(HttpRequest(f"{url}/moto-api/reset", method="POST")) as answer:
            answer.read()
        s3fs.S3FileSystem.clear_instance_cache()
        yield ObjectStore(url, {**ENVIRONMENT, "AWS_ENDPOINT_URL": url})
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def running_bucket(port: int = 0) -> Iterator[ObjectStore]:
    with running_object_store(port) as store, pytest.MonkeyPatch.context() as environment:
        for key, value in store.environment.items():
            environment.setenv(key, value)
        s3fs.S3FileSystem().mkdir(BUCKET)
        yield store
