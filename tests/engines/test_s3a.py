"""Refreshes that Spark writes to an S3 server by ``hadoop-aws``, as tables of every format."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

from airflow_dynamic_tables.core.refresh.spark_settings import SparkSettings
from tests.support.downloads import jars
from tests.support.faults.cluster_refreshes import SETTINGS, check_a_hanging_executor_is_overtaken
from tests.support.faults.report import FaultReport
from tests.support.faults.stores import KINDS, check_nothing_is_left, check_refreshes, site_of
from tests.support.faults.victims import Site
from tests.support.metastore import HiveMetastore, running_metastore
from tests.support.object_store import BUCKET, ObjectStore, running_bucket
from tests.support.spark import SMALL
from tests.support.spark_cluster import SparkCluster, running_spark_cluster

pytestmark = [pytest.mark.large, pytest.mark.spark, pytest.mark.timeout(1200)]

SECRET = "the-secret-of-this-store"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_bucket() as running, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        s3fs.S3FileSystem.clear_instance_cache()
        yield running


@pytest.fixture(scope="module")
def settings(java: None) -> SparkSettings:  # noqa: ARG001 - it must be there
    libraries = ",".join(str(jar) for name in ("hadoop-aws", "aws-sdk") for jar in jars(name))
    return SparkSettings(jars=libraries, conf={**SMALL, "spark.driver.memory": "1g"})


@pytest.fixture(scope="module")
def metastore(store: ObjectStore, settings: SparkSettings) -> Iterator[HiveMetastore]:  # noqa: ARG001 - it must be there
    """A metastore that reaches the store: it makes the folders of its tables."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HADOOP_CLASSPATH", (settings.jars or "").replace(",", ":"))
        with running_metastore() as running:
            yield running


@pytest.fixture(scope="module")
def cluster(store: ObjectStore, java: None) -> Iterator[SparkCluster]:  # noqa: ARG001 - its workers hand on the environment
    with running_spark_cluster() as started:
        yield started


@pytest.fixture
def site(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path, empty_state: Path) -> Iterator[Site]:
    kind = getattr(request, "param", "iceberg")
    uri = request.getfixturevalue("metastore").uri if kind == "hive" else ""
    yield site_of(kind, f"s3a://{BUCKET}/{tmp_path.name}", tmp_path, empty_state, uri)
    store.serve()


@pytest.mark.parametrize("site", [*KINDS, "orc"], indirect=True)
def test_a_table_in_a_bucket(site: Site, settings: SparkSettings) -> None:
    lines = check_refreshes(site, settings)
    assert SECRET not in "\n".join(lines)
    system = s3fs.S3FileSystem()
    found = [*site.home.glob("*.*"), *system.find(site.tables)]
    read = [path.read_bytes() if isinstance(path, Path) else system.cat_file(path) for path in found]
    assert not [path for path, text in zip(found, read, strict=True) if SECRET.encode() in text]


@pytest.mark.parametrize("site", ["iceberg", "delta"], indirect=True)
def test_a_task_that_runs_twice_leaves_each_row_once(
    site: Site, cluster: SparkCluster, settings: SparkSettings, fault_report: FaultReport
) -> None:
    on_cluster = dataclasses.replace(settings, conf={**SETTINGS.conf, **settings.conf})
    check_a_hanging_executor_is_overtaken(site, cluster, on_cluster, 160)
    fault_report.injected("SIGSTOP")
    check_nothing_is_left(site)
