"""``validate`` and ``schema``: what needs the definitions alone."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from airflow_dynamic_tables.cli.project import definitions_path, scope
from airflow_dynamic_tables.cli.running import FAILED, OK
from airflow_dynamic_tables.definitions.declarations import definitions_schema
from airflow_dynamic_tables.definitions.loader import load_definitions
from airflow_dynamic_tables.exceptions import DefinitionError


def validate(arguments: Namespace) -> int:
    """Print every mistake of every file, one a line."""
    path = definitions_path(arguments)
    try:
        defined = load_definitions(path, scope=scope(arguments, path))
    except DefinitionError as error:
        print(error)
        return FAILED
    counts = f"{len(defined.tables)} dynamic tables and {len(defined.sources)} sources"
    print(f"{path}: {counts}, no mistakes.", file=sys.stderr)
    return OK


def schema(arguments: Namespace) -> int:  # noqa: ARG001 - every command gets its arguments
    """Print the JSON Schema of definition files."""
    print(json.dumps(definitions_schema(), indent=2))
    return OK
