"""``schema``; a separate module, because it imports the models of all keys, which would slow down the other commands."""

from __future__ import annotations

import json
from argparse import Namespace

from airflow_dynamic_tables.cli.arguments import DEBUG
from airflow_dynamic_tables.cli.command_index import command
from airflow_dynamic_tables.cli.running import OK
from airflow_dynamic_tables.definitions.declarations.file import definitions_schema


@command("schema", "print the JSON Schema of definition files", (DEBUG,))
def schema(arguments: Namespace) -> int:  # noqa: ARG001 - every command receives its arguments
    """Print the JSON Schema of definition files, for completion and checks in an editor."""
    print(json.dumps(definitions_schema(), indent=2))
    return OK
