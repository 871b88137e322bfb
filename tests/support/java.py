"""Java in a process of its own, whose classes a test calls by Py4J."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.downloads import jars

_OPTIONS = [
    "-Xmx1g",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time", "java.util"),
            *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "java.util.regex"),
        )
    ),
]


@dataclass(frozen=True)
class Java:
    """A process of Java, and its packages."""

    process: subprocess.Popen[bytes]
    jvm: Any


@contextmanager
def running_java(*engines: str, more: tuple[Path, ...] = ()) -> Iterator[Java]:
    """Start Java with the jars of engines, by their names in ``downloads.toml``, and after them those of PySpark."""
    used = [*(jar for name in engines for jar in jars(name)), *more]
    classpath = ":".join([*map(str, used), f"{Path(pyspark.__file__).parent}/jars/*"])
    port, process = launch_gateway(classpath=classpath, javaopts=_OPTIONS, die_on_exit=True, return_proc=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Java(process, gateway.jvm)
    finally:
        gateway.shutdown()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):  # what was not sent any more
                stream.close()
