"""Airflow's DAG file: every dynamic table below ``definitions`` becomes a DAG."""

from pathlib import Path

from airflow_dynamic_tables.dag_factory import load_dynamic_tables

load_dynamic_tables(globals(), Path(__file__).parent / "definitions")
