"""What Airflow asks every provider at start-up. Strings only: this module is imported by every Airflow process."""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Dynamic tables"
_PACKAGE = "airflow_dynamic_tables"
_SOURCE = "https://github.com/airflow-dynamic-tables/airflow-dynamic-tables"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider; a test checks the result against Airflow's own schema."""
    return {
        "package-name": "airflow-dynamic-tables",
        "name": "Dynamic tables",
        "description": "Tables that keep themselves fresh: SQL plus a freshness in YAML, refreshed atomically by Spark.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": f"{_SOURCE}/tree/main/docs",
                "how-to-guide": [f"/docs/{page}.md" for page in ("airflow", "definitions", "operations")],
                "logo": "/docs/integration-logos/dynamic-tables.svg",
                "tags": ["service"],
            }
        ],
        "operators": _modules(
            *("operators.dynamic_table_refresh", "operators.decide", "operators.maintenance", "operators.verification"),
            "operators.freshness",
            "operators.one_off.create_table_as",
        ),
        "sensors": _modules("sensors.freshness"),
        "hooks": _modules("hooks.dynamic_table_catalog"),
        "triggers": _modules("triggers.upstream", "triggers.quarantine"),
        "asset-uris": [
            {
                "schemes": ["dynamic-table"],
                "handler": None,
                "to_openlineage_converter": f"{_PACKAGE}.assets.convert_asset_to_openlineage",
            }
        ],
        "extra-links": [f"{_PACKAGE}.operators.links.{name}" for name in ("SparkLink", "TableLink")],
        "connection-types": [_CONNECTION_TYPE],
        "config": {"dynamic_tables": _CONFIG},
        "cli": [f"{_PACKAGE}.plugins.commands.get_cli_commands"],
    }


def _modules(*names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.{name}" for name in names]}]


_CONNECTION_TYPE = {
    "connection-type": "dynamic_tables",
    "hook-class-name": f"{_PACKAGE}.hooks.dynamic_table_catalog.DynamicTableCatalogHook",
    "hook-name": "Dynamic tables",
    "ui-field-behaviour": {
        "hidden-fields": ["extra"],
        "relabeling": {"schema": "Database", "host": "PostgreSQL host"},
        "placeholders": {
            "host": "empty: SQLite under the Airflow home",
            "port": "5432",
            "schema": "dynamic_tables",
        },
    },
    "conn-fields": {
        "warehouse": {
            "label": "Warehouse",
            "description": "Folder of the tables' files, as every worker and Spark reach it, e.g. s3://bucket/warehouse.",
            "schema": {"type": ["string", "null"]},
        },
        "catalogs_file": {
            "label": "Catalogs file",
            "description": "YAML file that names the catalogs. The one beside the definitions wins.",
            "schema": {"type": ["string", "null"]},
        },
        "database_url": {
            "label": "Database URL",
            "description": "SQLAlchemy URL of the state instead of host, port, login, password and database.",
            "schema": {"type": ["string", "null"], "format": "password"},
        },
    },
}

_CONFIG = {
    "description": "Dynamic tables: SQL plus a freshness in YAML, refreshed by Spark.",
    "options": {
        "connection": {
            "description": "Connection of type dynamic_tables with the location of the state. Without the default connection, "
            "the state is SQLite and a warehouse folder under the Airflow home. If a connection of another name is missing, "
            "this is an error.\n",
            "version_added": "0.1.0",
            "type": "string",
            "example": None,
            "default": "dynamic_tables_default",
        },
        "definitions": {
            "description": "File or folder of the definitions, for the REST gateway of the api-server. Empty: the value of "
            "DYNAMIC_TABLES_DEFINITIONS, or else definitions in the folder of the DAGs.\n",
            "version_added": "0.2.0",
            "type": "string",
            "example": "/opt/airflow/dags/definitions",
            "default": "",
        },
        "gateway": {
            "description": "Whether the api-server has the REST gateway and the page. False: the response to every request is "
            "404, and Airflow's UI has no link to the page.\n",
            "version_added": "0.2.0",
            "type": "boolean",
            "example": None,
            "default": "True",
        },
        "upstream_poll_interval": {
            "description": "Seconds between two checks of the parents that a refresh waits for, and before the first one.\n",
            "version_added": "0.1.0",
            "type": "integer",
            "example": None,
            "default": "30",
        },
        "freshness_threshold": {
            "description": "A table with a freshness below this, and without a refresh mode, is refreshed continuously. Empty: "
            "the value of DYNAMIC_TABLES_FRESHNESS_THRESHOLD, or else 30 minutes.\n",
            "version_added": "0.2.0",
            "type": "string",
            "example": "10 minutes",
            "default": "",
        },
        "spark_history_server": {
            "description": "Address of Spark's history server, to which a task's link to Spark leads after its job has ended. "
            "Empty: the link leads to YARN's page of the job, if there is one.\n",
            "version_added": "0.2.0",
            "type": "string",
            "example": "https://spark-history.example.org",
            "default": "",
        },
    },
}
