"""Processes that begin with everything imported already: PyIceberg alone takes each a second, most of it for pandas."""

from __future__ import annotations

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
"""Makes processes from a server that has nothing of the test's own."""

PROCESSES.set_forkserver_preload(
    [
        "_strptime",
        "encodings.utf_8_sig",
        "fsspec.implementations.chained",
        "fsspec.implementations.local",
        "psycopg",
        "pyiceberg.avro.decoder_fast",
        "pyiceberg.catalog.sql",
        "pytest",
        "rich.console",
        "rich.table",
        "s3fs",
        "airflow_dynamic_tables.catalog.sql.catalog",
        "airflow_dynamic_tables.definitions.queries.parsing",
        "airflow_dynamic_tables.definitions.reading",
        "airflow_dynamic_tables.formats.iceberg.history",
        "airflow_dynamic_tables.formats.iceberg.table",
        "airflow_dynamic_tables.formats.iceberg.stage",
        "airflow_dynamic_tables.formats.iceberg.table",
        "airflow_dynamic_tables.services.refresh.running",
        "tests.support.faults.model.work",
    ]
)
# Listed is what a refresh, a sweep and a reader import, also late: a child imports again what is missing here.
