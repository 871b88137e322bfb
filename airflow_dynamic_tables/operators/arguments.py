"""What an operator that refreshes a table hands on to Airflow's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.dags_support.declared import default_args_of, refresh_settings
from airflow_dynamic_tables.dags_support.page import describe_table
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.operators.reconcilers import beside_ours


def refresh_arguments(table: DynamicTable, definitions: Definitions, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the operator of a table is made with: what is given, then what the definition says, then defaults, ours last.

    :param definitions: where the dynamic tables are looked up that it reads.
    :param given: arguments of the operator, with those of its DAG and task group as ``default_args``.
    :raises ConfigurationError: when a callback of the definition does not exist.
    """
    defaults = given.get("default_args") or {}
    said = refresh_settings(table)
    spark = {field.name: value for field in fields(table.spark) if (value := getattr(table.spark, field.name))}
    # Spark's own hook adds to the conf.
    spark["conf"] = {**(defaults.get("conf") or {}), **table.spark.conf}
    outlets = [dynamic_table_asset(table.identifier)]
    inlets = [dynamic_table_asset(name) for name in table.upstream if name in definitions.tables]
    beside = {name: [*ours, *(given.get(name) or ())] for name, ours in (("outlets", outlets), ("inlets", inlets))}
    ours = {name: value for name, value in default_args_of(table).items() if name not in defaults}
    # A durable job would be found again by a later try, whose stage it does not write to.
    fixed = {"name": str(table.identifier), "durable": False}
    page = {"doc_md": describe_table(table, definitions)}
    return {**ours, **page, **fixed, **spark, **said, **given, **beside, **beside_ours({**defaults, **said, **given})}
