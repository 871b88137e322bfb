"""Random interleavings of all that can happen, checked after every step against a small model of the table."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from tests.support.faults.cutting_proxy import cutting_proxy
from tests.support.faults.model.checker import Walk, walk
from tests.support.faults.model.lakes.base import rows_of
from tests.support.faults.model.lakes.delta import DeltaLake
from tests.support.faults.model.lakes.folder import FolderLake
from tests.support.faults.model.lakes.iceberg import IcebergLake
from tests.support.faults.model.lakes.iceberg_spark import SparkIcebergLake
from tests.support.faults.model.lakes.jdbc import JdbcLake
from tests.support.faults.model.scene import Scene, hurried
from tests.support.faults.report import FaultReport
from tests.support.faults.victims import Site
from tests.support.iceberg_spark import IcebergSpark
from tests.support.postgres import PostgresServer

POLARS = "POLARS_ICEBERG_PLANNER"
"""Who plans for Polars; it reads the files itself."""

LONG = range(2, 32)
"""Seeds of the long form."""

LONG_OF_FOLDERS = [pytest.param(*case, marks=pytest.mark.long) for case in product(("sqlite", "postgres"), range(2, 6))]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG)])
def test_an_iceberg_table(
    site: Site, request: pytest.FixtureRequest, fault_report: FaultReport, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv(POLARS, "pyiceberg")
    chosen = Walk.chosen(seed, 50 if seed == 1 else 250)
    with ExitStack() as opened:
        lake = opened.enter_context(closing(IcebergLake(site)))
        scene = Scene(site, lake, opened.enter_context(site.open()), Random(chosen.seed))
        if not site.database_url.startswith("sqlite"):
            server: PostgresServer = request.getfixturevalue("postgres")
            scene.proxy = opened.enter_context(cutting_proxy(server.port))
            behind = hurried(site).database_url.replace(f":{server.port}/", f":{scene.proxy.port}/")
            scene.cable = replace(site, database_url=behind)
        walk(scene, chosen, lambda scene: polars_reads(scene, lake))
    fault_report.note(f"model: {request.node.name}: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")


@pytest.mark.large
@pytest.mark.parametrize(("site", "seed"), [("sqlite", 1), *LONG_OF_FOLDERS], indirect=["site"])
def test_an_iceberg_table_beside_spark(
    site: Site, request: pytest.FixtureRequest, fault_report: FaultReport, iceberg_spark: IcebergSpark, seed: int
) -> None:
    """The other engine is Spark with Iceberg's own library, which deletes rows beside the files."""
    chosen = Walk.chosen(seed, 60 if seed == 1 else 250)
    with closing(SparkIcebergLake(site, iceberg_spark)) as lake, site.open() as workspace:
        scene = Scene(site, lake, workspace, Random(chosen.seed))
        walk(scene, chosen)
    fault_report.note(f"model: {request.node.name}: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")


def polars_reads(scene: Scene, lake: IcebergLake) -> None:
    """Polars reads every version as the model has it."""
    polars = pytest.importorskip("polars")
    table = lake.load(scene.name)
    for version in lake.versions(scene.name):
        read = polars.scan_iceberg(table, snapshot_id=int(version.snapshot)).collect().to_dicts()
        assert rows_of(read) == scene.state.made[version.number - 1].rows
    assert table is None or rows_of(polars.scan_iceberg(table).collect().to_dicts()) == scene.state.rows


@pytest.mark.large
@pytest.mark.parametrize(("site", "seed"), [("sqlite", 1), *LONG_OF_FOLDERS], indirect=["site"])
def test_a_delta_table(site: Site, request: pytest.FixtureRequest, fault_report: FaultReport, seed: int) -> None:
    chosen = Walk.chosen(seed, 30 if seed == 1 else 250)
    with closing(DeltaLake(site)) as lake, site.open() as workspace:
        scene = Scene(site, lake, workspace, Random(chosen.seed))
        walk(scene, chosen)
    fault_report.note(f"model: {request.node.name}: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")


@pytest.mark.parametrize(("site", "seed"), [("sqlite", 1), *LONG_OF_FOLDERS], indirect=["site"])
def test_a_plain_folder(site: Site, request: pytest.FixtureRequest, fault_report: FaultReport, seed: int) -> None:
    """Whoever dies may leave a part of what they wrote, until the same partitions are refreshed again."""
    chosen = Walk.chosen(seed, 40 if seed == 1 else 250)
    with closing(FolderLake(site)) as lake, site.open() as workspace:
        scene = Scene(site, lake, workspace, Random(chosen.seed))
        walk(scene, chosen)
    fault_report.note(f"model: {request.node.name}: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")


@pytest.mark.large
@pytest.mark.postgres
@pytest.mark.parametrize(
    ("site", "seed"), [("jdbc", 1), *(pytest.param("jdbc", seed, marks=pytest.mark.long) for seed in LONG)], indirect=["site"]
)
def test_a_postgres_table(site: Site, request: pytest.FixtureRequest, fault_report: FaultReport, seed: int) -> None:
    chosen = Walk.chosen(seed, 40 if seed == 1 else 250)
    with closing(JdbcLake(site)) as lake, site.open() as workspace:
        scene = Scene(site, lake, workspace, Random(chosen.seed))
        walk(scene, chosen)
    fault_report.note(f"model: {request.node.name}: seed {chosen.seed}, {chosen.steps} steps, {dict(scene.counts)}")
