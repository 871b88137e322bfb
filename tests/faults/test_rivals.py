"""What readers see while Spark's own INSERT OVERWRITE replaces the partitions of a plain Parquet table, watched as ours is.

A poll is one look by one of two reader processes: it lists the files and reads those it has not met. It is torn when it finds no
rows, partitions missing, versions mixed, or a file that was listed and gone when it was to be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.support.faults.parquet_reader import ROWS, TORN, ParquetReader
from tests.support.faults.report import FaultReport
from tests.support.faults.watchers import FAILED, Report, Sight, watching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READERS = 2
OVERWRITES = 3
ROUNDS = 10
"""Of so many overwrites each, until something torn was seen."""

LONG = [pytest.mark.long, pytest.mark.timeout(3600)]


class Rival:
    """A Parquet table that Spark overwrites."""

    def __init__(self, spark: SparkSession, folder: Path, mode: str, partitions: int) -> None:
        self.folder = folder
        self.mode = mode
        self.partitions = partitions
        self.versions = 0
        self._spark = spark
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
        spark.sql(f"CREATE TABLE rival (n INT, v INT, p INT) USING parquet PARTITIONED BY (p) LOCATION 'file://{folder}'")

    def overwrite(self, n: str = "n") -> None:
        """Replace every partition with the next version.

        :param n: what is written into the column of that name, in SQL.
        """
        self.versions += 1
        self._spark.sql(
            f"INSERT OVERWRITE rival PARTITION (p) SELECT {n}, {self.versions} AS v, CAST(id AS INT) AS p "
            f"FROM range({self.partitions}) LATERAL VIEW explode(sequence(1, {ROWS})) AS n"
        )

    def rows(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self.folder.glob("p=*/[!._]*.parquet"))


@pytest.fixture
def rival_of(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str, int], Rival]]:
    yield lambda mode, partitions: Rival(spark, tmp_path / "rival", mode, partitions)
    spark.sql("DROP TABLE rival")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.large
@pytest.mark.parametrize(
    ("mode", "partitions"),
    [
        ("static", 100),
        ("dynamic", 100),
        pytest.param("static", 1, marks=LONG),
        pytest.param("static", 2000, marks=LONG),
        pytest.param("dynamic", 2000, marks=LONG),
    ],
)
def test_an_insert_overwrite_is_seen_torn(
    rival_of: Callable[[str, int], Rival], mode: str, partitions: int, fault_report: FaultReport
) -> None:
    rival = rival_of(mode, partitions)
    rival.overwrite()
    reports: list[Report] = []
    while not _torn(reports) and len(reports) < ROUNDS * READERS:
        with watching(ParquetReader, rival.folder, rival.partitions, processes=READERS) as readers:
            for _ in range(OVERWRITES):
                rival.overwrite()
            reports += readers.reports()
    torn = _torn(reports)
    fault_report.note(_comparison(rival, reports, torn))
    assert torn != []


def test_a_failed_static_overwrite_leaves_nothing(rival_of: Callable[[str, int], Rival], fault_report: FaultReport) -> None:
    rival = rival_of("static", 10)
    rival.overwrite()
    assert rival.rows() == 10 * ROWS
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION"):
        rival.overwrite("CAST(raise_error('the query fails') AS INT)")
    assert rival.rows() == 0
    fault_report.note(
        f"for comparison, Spark's static INSERT OVERWRITE with a query that fails: 0 of {10 * ROWS} rows are left for good"
    )


def _torn(reports: list[Report]) -> list[Sight]:
    return [sight for report in reports for sight in report.seen if sight.state.startswith((TORN, FAILED))]


def _comparison(rival: Rival, reports: list[Report], torn: list[Sight]) -> str:
    kinds: Counter[str] = Counter()
    for sight in torn:
        kinds["read failed" if sight.state.startswith(FAILED) else sight.state.removeprefix(TORN)] += sight.times
    seconds = sum(sight.seconds for report in reports for sight in report.seen)
    share = sum(sight.seconds for sight in torn) / seconds
    return (
        f"for comparison, Spark's {rival.mode} INSERT OVERWRITE of {rival.partitions:,} partitions, {rival.versions - 1} times: "
        f"{kinds.total():,} of {sum(report.polls for report in reports):,} polls torn, for {share:.1%} of the time "
        f"({', '.join(f'{kind} {count:,}' for kind, count in kinds.most_common())})"
    )
