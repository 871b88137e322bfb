"""Arguments that a refresh operator passes to Airflow's base operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_dynamic_tables.assets import dynamic_table_asset
from airflow_dynamic_tables.dags.declared import default_args_of, refresh_settings
from airflow_dynamic_tables.dags.doc_md import describe_table
from airflow_dynamic_tables.definitions.model import Definitions, DynamicTable
from airflow_dynamic_tables.operators.reconcilers import beside_ours


def refresh_arguments(table: DynamicTable, definitions: Definitions, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operator arguments of a table; given arguments override the definition, and the definition overrides defaults.

    :param definitions: the definitions with the dynamic tables that it reads.
    :param given: arguments of the operator, with those of its DAG and task group as ``default_args``.
    :raises ConfigurationError: if a callback of the definition does not exist.
    """
    defaults = given.get("default_args") or {}
    said = refresh_settings(table)
    spark = {field.name: value for field in fields(table.spark) if (value := getattr(table.spark, field.name))}
    # The Spark hook adds to the conf.
    spark["conf"] = {**(defaults.get("conf") or {}), **table.spark.conf}
    outlets = [dynamic_table_asset(table.identifier)]
    inlets = [dynamic_table_asset(name) for name in table.upstream if name in definitions.tables]
    beside = {name: [*ours, *(given.get(name) or ())] for name, ours in (("outlets", outlets), ("inlets", inlets))}
    ours = {name: value for name, value in default_args_of(table).items() if name not in defaults}
    # A later try would find a durable job again, which does not write to the stage of that try.
    fixed = {"name": str(table.identifier), "durable": False}
    page = {"doc_md": describe_table(table, definitions)}
    return {**ours, **page, **fixed, **spark, **said, **given, **beside, **beside_ours({**defaults, **said, **given})}
