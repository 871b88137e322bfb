"""The commit alone: 1,000 partitions replaced by 1,000 new files, on SQLite and a local disk.

The rival is what one would write by hand with PyIceberg: ``delete`` of the partitions and ``add_files`` in one transaction,
which knows neither token nor version, checks no file against a plan, and leaves two snapshots.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from measure import check, compare, interleave, spread
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In

from airflow_dynamic_tables.catalog.sql.catalog import SqlCatalog
from airflow_dynamic_tables.clients.database.engine import Database
from airflow_dynamic_tables.clients.stores import IcebergStore
from airflow_dynamic_tables.core.identifiers import ObjectPath
from airflow_dynamic_tables.core.partitions import PartitionSet
from airflow_dynamic_tables.core.refresh.plan import RefreshResult, StagedFile
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.core.versions import DEFAULT_RETENTION
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import NUMBER, TOKEN
from airflow_dynamic_tables.formats.iceberg.table import IcebergTable
from airflow_dynamic_tables.services.tables.rollback import ENOUGH

PARTITIONS = 1000
ROUNDS = 7
FEW = 10
MINUTE = timedelta(minutes=1)
HISTORIES = (DEFAULT_RETENTION.versions_kept(MINUTE) + ENOUGH, 10_000)
"""Versions that a table keeps at most by default when it is refreshed every minute, for however long; and a week of minutes."""
DAYS = tuple(f"day-{number:04d}" for number in range(PARTITIONS))
COLUMNS = (Column("ds", "string"), Column("country", "string"), Column("revenue", "double"))


def main() -> None:
    """Fill two tables, then replace every partition of them in turn."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("lake", Database(f"sqlite:///{folder}/state.db"), f"file://{folder}/warehouse")
        catalog.open()
        iceberg = catalog.iceberg
        for name in ("ours", "rival"):  # made in the same way, so that both have the same schema and partitions
            commit_ours(iceberg, name)
        measured = interleave(
            ROUNDS,
            ours=lambda: commit_ours(iceberg, "ours"),
            rival=lambda: commit_rival(iceberg, "rival"),
        )
        catalog.close()
    what = f"commit of {PARTITIONS} partitions"
    compare(what, measured["ours"], measured["rival"], "PyIceberg by hand")
    check(what, measured["ours"], "s", 3)
    for many in HISTORIES:
        measure_history(many)


def measure_history(many: int) -> None:
    """CPU of a commit of one file to a table of many versions, and to one of few, by a process that knows neither yet.

    The least is what any commit does to the metadata file of so many versions: read it and write the next one.
    """
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("lake", Database(f"sqlite:///{folder}/state.db"), f"file://{folder}/warehouse")
        for name, count in (("many", many), ("few", FEW)):
            commit_ours(catalog.iceberg, name, DAYS[:1])
            make_versions(catalog.iceberg, name, count)
        metadata = Path(catalog.iceberg.load_table(("bench", "many")).metadata_location.removeprefix("file://"))
        text = metadata.read_text()
        measured = interleave(
            ROUNDS,
            ours=lambda: cpu_of_commit(catalog, "many"),
            rival=lambda: cpu_of_commit(catalog, "few"),
            least=lambda: cpu(lambda: metadata.with_name("next.json").write_text(json.dumps(json.loads(text)))),
        )
        catalog.close()
    what = f"CPU of a commit to a table of {many} versions"
    compare(what, measured["ours"], measured["rival"], f"of {FEW} versions", target=1.5)
    print(f"  to read and write its metadata file of {len(text) / 1e6:.1f} MB takes at least {spread(measured['least'])}")


def cpu_of_commit(catalog: SqlCatalog, name: str) -> float:
    """Seconds of CPU of a commit of one file through a catalog that was opened anew."""
    catalog.close()
    catalog.open()
    iceberg = catalog.iceberg
    return cpu(lambda: commit_ours(iceberg, name, DAYS[:1]))


def cpu(action: Callable[[], object]) -> float:
    """Seconds of CPU that something takes in this process."""
    started = time.process_time()
    action()
    return time.process_time() - started


def make_versions(catalog: Catalog, name: str, count: int) -> None:
    """Give a table as many versions, all with the files of its first one."""
    table = catalog.load_table(("bench", name))
    metadata = json.loads(table.metadata.model_dump_json())
    (first,) = metadata["snapshots"]
    started = first["timestamp-ms"] - count
    metadata["snapshots"] = [
        {
            **{key: value for key, value in first.items() if key != "parent-snapshot-id"},
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": started + number,
            "summary": {**first["summary"], NUMBER: str(number), TOKEN: str(uuid4())},
        }
        for number in range(1, count + 1)
    ]
    metadata["snapshot-log"] = [{"snapshot-id": number, "timestamp-ms": started + number} for number in range(1, count + 1)]
    metadata |= {"current-snapshot-id": count, "last-sequence-number": count}
    metadata["refs"]["main"]["snapshot-id"] = count
    location = table.metadata_location.replace("/metadata/", "/metadata/9")
    Path(location.removeprefix("file://")).write_text(json.dumps(metadata))
    catalog.drop_table(("bench", name))
    catalog.register_table(("bench", name), location)


def commit_ours(catalog: Catalog, name: str, days: Sequence[str] = DAYS) -> float:
    """Seconds that our commit of a stage takes."""
    token = str(uuid4())
    planned = tuple({"ds": day} for day in days)
    staged = IcebergTable(IcebergStore("bench", catalog, nullcontext), ObjectPath("bench", name)).stage(token)
    files = tuple(StagedFile(path, size) for path, size in write_files(staged.begin(), days))
    result = RefreshResult(token, "bench", len(days), files, COLUMNS, planned)
    started = time.perf_counter()
    request = CommitRequest(result, datetime.now(UTC), partition_keys=("ds",), partitions=PartitionSet.of(planned))
    staged.commit(request, lambda: None)
    return time.perf_counter() - started


def commit_rival(catalog: Catalog, name: str) -> float:
    """Seconds that the same takes by hand."""
    path = ObjectPath("bench", name)
    location = catalog.load_table((path.database, path.name)).location()
    files = [file for file, _ in write_files(f"{location}/data/{uuid4()}")]
    started = time.perf_counter()
    with catalog.load_table((path.database, path.name)).transaction() as transaction:
        transaction.delete(In("ds", DAYS))  # type: ignore[call-arg, arg-type]  # as PyIceberg documents it
        transaction.add_files(files, check_duplicate_files=False)
    return time.perf_counter() - started


def write_files(folder: str, days: Sequence[str] = DAYS) -> list[tuple[str, int]]:
    """One small file for each partition.

    :return: URI and size of each.
    """
    found = []
    for number, day in enumerate(days):
        file = Path(folder.removeprefix("file://"), f"{number}.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"ds": [day], "country": ["DE"], "revenue": [float(number)]}), file)
        found.append((f"file://{file}", file.stat().st_size))
    return found


if __name__ == "__main__":
    main()
