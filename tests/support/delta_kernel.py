"""Delta Kernel, the library that Delta's other engines are built on, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.support.downloads import jars


@dataclass(frozen=True)
class DeltaKernel:
    jvm: Any

    def compact_log(self, table: Path, first: int, last: int) -> None:
        """Write one file beside the entries of these versions, with all that they say together."""
        kernel = self.jvm.io.delta.kernel
        engine = kernel.defaults.engine.DefaultEngine.create(self.jvm.org.apache.hadoop.conf.Configuration())
        places = [kernel.internal.fs.Path(f"file:{folder}") for folder in (table, table / "_delta_log")]
        kernel.internal.compaction.LogCompactionWriter(*places, first, last, 0).writeLogCompactionFile(engine)


@contextmanager
def running_delta_kernel() -> Iterator[DeltaKernel]:
    """Start it, on PySpark's jars; it is gone afterwards."""
    own = [*jars("delta-kernel-api"), *jars("delta-kernel-defaults"), *jars("delta-storage")]
    classpath = ":".join([*map(str, own), f"{Path(pyspark.__file__).parent}/jars/*"])
    port = launch_gateway(classpath=classpath, javaopts=["-Xmx512m", "-XX:TieredStopAtLevel=1"], die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield DeltaKernel(gateway.jvm)
    finally:
        gateway.shutdown()
