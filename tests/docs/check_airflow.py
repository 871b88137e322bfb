"""Stands in for airflow: only parses the command line, with Airflow's own parser."""

from collections.abc import Sequence

from airflow.cli.cli_parser import get_parser


def check(arguments: Sequence[str]) -> None:
    """Parse a command line; it exits with 2 when it cannot be parsed."""
    get_parser().parse_args(arguments)
