"""Delta Kernel, the library that Delta's other engines are built on, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.java import running_java


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
    with running_java("delta-kernel-api", "delta-kernel-defaults", "delta-storage") as java:
        yield DeltaKernel(java.jvm)
