"""Random interleavings of all that can happen to Hive tables, checked after every step against a small model of the table."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import product
from random import Random
from uuid import uuid4

import pytest

from tests.support.faults.model.checker import Walk, walk
from tests.support.faults.model.lakes.base import rows_of
from tests.support.faults.model.lakes.hive import HiveLake
from tests.support.faults.model.scene import Scene
from tests.support.faults.report import FaultReport
from tests.support.faults.victims import Site
from tests.support.metastore import HiveMetastore
from tests.support.spark import PlainSpark

LONG = [pytest.param(*case, marks=pytest.mark.long) for case in product(("sqlite", "postgres"), range(2, 6))]
"""Databases of the ledger, and seeds, of the long form."""


@pytest.mark.large
@pytest.mark.parametrize(("site", "seed"), [("sqlite", 1), *LONG], indirect=["site"])
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "flat"])
def test_a_hive_table(
    site: Site,
    hive_metastore: HiveMetastore,
    plain_spark: PlainSpark,
    fault_report: FaultReport,
    partitioned: bool,
    seed: int,
) -> None:
    chosen = Walk.chosen(seed, (40 if partitioned else 20) if seed == 1 else 250)
    database = f"model_{uuid4().hex}"
    catalogs = site.home / "catalogs.yaml"
    catalogs.write_text(
        f"catalogs: [{{name: lake, type: hive, default-database: {database}, "
        f"connection-params: {{uri: '{hive_metastore.uri}', warehouse: '{site.warehouse}'}}}}]"
    )
    placed = replace(site, catalogs=catalogs)
    with ExitStack() as opened:
        lake = opened.enter_context(closing(HiveLake(hive_metastore.uri, database, partitioned=partitioned)))
        scene = Scene(placed, lake, opened.enter_context(placed.open()), Random(chosen.seed))
        walk(scene, chosen, lambda scene: spark_reads(scene, plain_spark))
    fault_report.note(f"model: hive: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")


def spark_reads(scene: Scene, spark: PlainSpark) -> None:
    """A Spark that knows nothing of this package reads what the model says."""
    if scene.state.made:
        read = spark.sql(f"SELECT * FROM {scene.lake.table.database}.{scene.name}")
        assert rows_of(read) == scene.state.rows
