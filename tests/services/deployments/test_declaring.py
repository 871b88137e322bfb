"""Declarations that statements write into files of definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_dynamic_tables.core.identifiers import TableIdentifier
from airflow_dynamic_tables.exceptions import ConfigurationError
from airflow_dynamic_tables.services.deployments.declaring import file_name, new_declaration
from airflow_dynamic_tables.services.project import open_project


def test_a_file_that_is_no_text_is_told_and_stays(tmp_path: Path) -> None:
    orders = TableIdentifier("lake", "sales", "orders")
    file = tmp_path / file_name(orders)
    file.write_bytes(b"CREATE \xff\xfe")
    with pytest.raises(ConfigurationError, match=r"lake\.sales\.orders\.sql is no UTF-8 text; mend it, or remove it\."):
        new_declaration(open_project(str(tmp_path)), orders, "CREATE DYNAMIC TABLE lake.sales.orders AS SELECT 1 AS x")
    assert file.read_bytes() == b"CREATE \xff\xfe"
