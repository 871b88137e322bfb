"""Loading query tests with their definitions. It imports no catalog, so that commands that only check definitions start fast."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_dynamic_tables.clients.spark_parser import SparkParser
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.definitions.cache import Cache
from airflow_dynamic_tables.definitions.loader import find_files, load_sound_definitions, may_have_tests
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.queries.text import Analysis, refusals
from airflow_dynamic_tables.definitions.returned_columns import ReturnedColumns
from airflow_dynamic_tables.services.project import Project
from airflow_dynamic_tables.yaml_files.documents import read_text

if TYPE_CHECKING:
    from airflow_dynamic_tables.definitions.query_test_rows import QueryTest


def load_tests(
    project: Project, spark: SparkParser | None = None, columns: ReturnedColumns | None = None
) -> tuple[Definitions, tuple[QueryTest, ...], tuple[Mistake, ...]]:
    """Return the definitions of a project, their valid tests, and the mistakes of both.

    :param spark: parses SQL; without it, the built-in parser is used.
    :param columns: provides the columns that queries return.
    :raises ConfigurationError: if Spark's parser does not respond.
    """
    cache = Cache.of_user()
    read = cache.analyse if spark is None else partial(cache.analyse_with, spark)

    def analyse(query: str) -> Analysis:
        analysis = read(query)
        return replace(analysis, problems=(*analysis.problems, *refusals(analysis.needs, project.conventions.allowed)))

    conventions = project.conventions
    definitions, broken = load_sound_definitions(project.path, conventions=conventions, cache=cache, spark=spark, columns=columns)
    # Unreadable files are reported with the definitions.
    texts = {file: text for file in find_files(project.path).files if (text := read_text(file)[0]) is not None}
    if not any(may_have_tests(file, text) for file, text in texts.items()):
        return definitions, (), broken

    from airflow_dynamic_tables.definitions.query_test_reading import load_query_tests  # pydantic takes 0.3 s to import

    tests, mistakes = load_query_tests(texts, definitions, broken, analyse)
    return definitions, tests, tuple(sorted((*broken, *mistakes)))
