"""Stands in for airflow: only parses the command line, with Airflow's own parser."""

import sys

from airflow.cli.cli_parser import get_parser

get_parser().parse_args(sys.argv[1:])
