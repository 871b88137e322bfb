"""Spark's own parser and analyzer in a Java process, which is started on first use and executes no queries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from airflow_dynamic_tables.exceptions import ConfigurationError

_ANSWER_SECONDS = 60
"""Timeout in seconds for parsing a query, and for ending Java."""

_JAVA_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g"]
"""Options for a fast start and a small footprint, because the process serves a single command."""

_MESSAGE = re.compile(
    r"\s*(?P<text>.*?)\.?(?: SQLSTATE: \w+)?\s*(?:\(line \d+, pos \d+\)|; line \d+ pos \d+)?\s*(?:\n\n?== SQL|;\n|\Z)", re.DOTALL
)

_CATALYST = "org.apache.spark.sql.catalyst"

_UNTOLD = re.compile(r"^\[TABLE_OR_VIEW_NOT_FOUND\]|semistructuredextract\(")
"""Analyzer errors of queries that a session accepts: paths into variants, tables in some subqueries of pipes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Spark's reason for rejecting a text, and its position if known; line and column count from 0."""

    message: str
    place: tuple[int, int] | None


class SparkParser:
    """Parses and analyzes queries without a session; a context manager that ends the Java process.

    ``failure`` is the reason why the parser is unavailable, for callers that check many queries and report it at the end.
    """

    def __init__(self, jars: Path, java: str) -> None:
        self._jars = jars
        self._java = java
        self.failure: str | None = None
        self._gateway: Any = None
        self._analyzer: Any = None
        self._process: subprocess.Popen[str] | None = None

    @classmethod
    def installed(cls, environ: Mapping[str, str] = os.environ) -> SparkParser | None:
        """The parser of ``SPARK_HOME``, otherwise of the installed PySpark; ``None`` without PySpark or Java."""
        package = find_spec("pyspark")
        beside = Path(package.origin).parent if package is not None and package.origin else None
        home = Path(environ["SPARK_HOME"]) if environ.get("SPARK_HOME") else beside
        java_home = environ.get("JAVA_HOME")
        java = shutil.which(str(Path(java_home, "bin", "java")) if java_home else "java", path=environ.get("PATH"))
        if home is None or java is None or find_spec("py4j") is None or not list(home.glob("jars/spark-catalyst_*.jar")):
            return None
        return cls(home / "jars", java)

    @property
    def version(self) -> str:
        """Spark's version."""
        return next(self._jars.glob("spark-catalyst_*.jar")).stem.partition("-")[2].partition("-")[2]

    def refusal(self, query: str) -> Refusal | None:
        """Return why Spark cannot parse a query; ``None`` when it can, or when it fails for another reason.

        :raises ConfigurationError: when the parser cannot be started or does not answer.
        """
        with self._asked({"ParseException"}) as (gateway, refusals):
            _settle(gateway, {})
            parser = gateway.jvm.org.apache.spark.sql.execution.SparkSqlParser()
            for no_longer_needed in (parser.parsePlan(query), parser):
                gateway.detach(no_longer_needed)
        return next(iter(refusals), None)

    def returned(self, query: str, settings: Mapping[str, str]) -> str | Refusal | None:
        """The schema, as JSON, of a query that reads no tables except those it defines itself.

        :return: the schema, or Spark's reason for rejecting it; ``None`` when it fails for another reason, e.g. a catalog
            function.
        :raises ConfigurationError: as :meth:`refusal`.
        """
        schema: str | None = None
        with self._asked({"ParseException", "AnalysisException", "ExtendedAnalysisException"}) as (gateway, refusals):
            self._analyzer = self._analyzer or _analyzer(gateway)
            _settle(gateway, settings)
            parser = gateway.jvm.org.apache.spark.sql.execution.SparkSqlParser()
            analyzed = self._analyzer.execute(parser.parsePlan(query))
            self._analyzer.checkAnalysis(analyzed)
            schema = analyzed.schema().json()
        return next((refusal for refusal in refusals if not _UNTOLD.search(refusal.message)), None) if refusals else schema

    @contextmanager
    def _asked(self, kinds: Collection[str]) -> Iterator[tuple[Any, list[Refusal]]]:
        """The Java gateway; a Java exception of these kinds becomes a refusal, and any exception ends the body."""
        from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # installed with PySpark

        refusals: list[Refusal] = []
        try:
            gateway = self._gateway or self._start()
            with own_exceptions():
                yield gateway, refusals
        except Py4JJavaError as error:
            thrown = error.java_exception
            if thrown.getClass().getSimpleName() in kinds:
                line, column = thrown.line(), thrown.startPosition()
                is_placed = line.isDefined() and column.isDefined()
                refusals.append(Refusal(_words(thrown.getMessage()), (line.get() - 1, column.get()) if is_placed else None))
        except (Py4JError, Py4JNetworkError, OSError, ValueError) as error:
            self.close()
            self.failure = f"Spark's parser does not answer ({error})."
            raise ConfigurationError(self.failure) from error

    def _start(self) -> Any:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        # The server requires the token that it prints, and ends together with this process.
        server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        command = [self._java, "-classpath", str(self._jars / "*"), *_JAVA_OPTIONS, *server]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        port, token = (line.strip() for line in islice(self._process.stdout or (), 2))
        parameters = GatewayParameters(
            port=int(port),
            auth_token=token,
            read_timeout=_ANSWER_SECONDS,
            enable_memory_management=False,  # otherwise Py4J asks Java to release objects even after its end
        )
        self._gateway = JavaGateway(gateway_parameters=parameters)
        return self._gateway

    def close(self) -> None:
        """End the Java process, if it runs."""
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = self._analyzer = None
        if self._process is not None:
            self._process.kill()
            self._process.wait(_ANSWER_SECONDS)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None

    def __enter__(self) -> SparkParser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def _settle(gateway: Any, settings: Mapping[str, str]) -> None:
    """Apply settings, and Spark's defaults for all others; ``${…}`` in a query is not substituted."""
    conf = gateway.jvm.org.apache.spark.sql.internal.SQLConf.get()
    conf.clear()
    for name, value in {**settings, "spark.sql.variable.substitute": "false"}.items():
        conf.setConfString(name, value)


def _analyzer(gateway: Any) -> Any:
    """Spark's analyzer with its built-in functions and an empty catalog."""

    def built_in(registry: str) -> Any:
        companion = gateway.jvm.java.lang.Class.forName(f"{_CATALYST}.analysis.{registry}$")
        return companion.getField("MODULE$").get(None).builtin()

    spark = gateway.jvm.org.apache.spark
    catalyst = spark.sql.catalyst
    empty = catalyst.catalog.InMemoryCatalog(spark.SparkConf(False), gateway.jvm.org.apache.hadoop.conf.Configuration(False))
    session = catalyst.catalog.SessionCatalog(empty, built_in("FunctionRegistry"), built_in("TableFunctionRegistry"))
    return catalyst.analysis.Analyzer(session)


@contextmanager
def own_exceptions() -> Iterator[None]:
    """Restore Py4J's own exception handling: PySpark patches it to ask the Java of a session in this process."""
    from py4j import java_gateway, protocol

    patched = java_gateway.get_return_value
    java_gateway.get_return_value = protocol.get_return_value
    try:
        yield
    finally:
        java_gateway.get_return_value = patched


def _words(message: str) -> str:
    """The message without the query, which the reader already has."""
    found = _MESSAGE.match(message)
    return " ".join((found["text"] if found else message).split())
