"""Pytest plugin that runs the unit tests of queries; inactive unless definitions are configured.

Every pytest run imports it, so it imports other modules of this package only when there is a test to collect.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow_dynamic_tables.core.mistakes import Mistake
    from airflow_dynamic_tables.definitions.model import Definitions
    from airflow_dynamic_tables.definitions.query_test_rows import QueryTest
    from airflow_dynamic_tables.services.query_tests import QueryTestResult

    Loaded = tuple[Definitions, tuple[QueryTest, ...], tuple[Mistake, ...]]

_OPTION = "--dynamic-tables"
_SETTING = "dynamic_tables"
_SUFFIXES = (".yaml", ".yml")

_LOADED: pytest.StashKey[Loaded] = pytest.StashKey()
_RESULTS: pytest.StashKey[dict[str, QueryTestResult]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting for definitions."""
    parser.getgroup("dynamic-tables").addoption(
        _OPTION, metavar="PATH", help="run the unit tests of dynamic tables in this file or folder of definitions, too"
    )
    parser.addini(
        _SETTING, "file or folder of definitions of dynamic tables, whose tests are collected where pytest looks for tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the definitions of the option to the arguments of pytest, unless they or a part of them are included."""
    if config.getoption(_OPTION) and (definitions := _definitions(config)) is not None:
        chosen = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
        if not any(definitions.is_relative_to(path) or path.is_relative_to(definitions) for path in chosen):
            config.args.append(str(definitions))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the tests of a definitions file."""
    definitions = _definitions(parent.config)
    if definitions is None or file_path.suffix not in _SUFFIXES or not file_path.resolve().is_relative_to(definitions):
        return None
    return QueryTestFile.from_parent(parent, path=file_path)


class QueryTestFile(pytest.File):
    """A definitions file."""

    def collect(self) -> Iterable[QueryTestItem]:
        """Yield the tests of the file; fail if they or the definitions contain mistakes, which may hide tests."""
        _, tests, mistakes = _loaded(self.config)
        own = [mistake for mistake in mistakes if mistake.path.resolve() == self.path.resolve()]
        if own or (mistakes and "tests" in self.path.read_text(encoding="utf-8", errors="replace")):
            raise self.CollectError("\n".join(map(str, own or mistakes)))
        for test in tests:
            place = test.at("name", "")
            if place.path.resolve() == self.path.resolve():
                yield QueryTestItem.from_parent(self, name=f"{test.table.identifier}[{test.name}]", test=test, line=place.line)


class QueryTestItem(pytest.Item):
    """One test. All selected tests run together in one Spark session when the first one runs."""

    def __init__(self, *, test: QueryTest, line: int, **others: Any) -> None:
        super().__init__(**others)
        self.test = test
        self.line = line

    def runtest(self) -> None:
        """Check the result.

        :raises QueryTestFailedError: if the test did not pass.
        """
        result = _results(self)[self.test.full_name]
        if result.verdict != "passed":
            raise QueryTestFailedError(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the differences, as printed by the command line."""
        if isinstance(excinfo.value, QueryTestFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return file, line (from 0) and name of the test."""
        return self.path, self.line - 1, self.name


class QueryTestFailedError(Exception):
    """A test did not pass."""

    def __init__(self, result: QueryTestResult) -> None:
        from airflow_dynamic_tables.cli.commands.query_tests import told

        super().__init__("\n".join(told(result)))


def _definitions(config: pytest.Config) -> Path | None:
    """Return the configured definitions: the option is relative to the working directory, the setting to its file."""
    if named := config.getoption(_OPTION):
        return Path(config.invocation_params.dir, str(named)).resolve()
    setting = config.getini(_SETTING)
    return Path(config.rootpath, str(setting)).resolve() if setting else None


def _loaded(config: pytest.Config) -> Loaded:
    from airflow_dynamic_tables.services.project import load_tests, open_project

    if _LOADED not in config.stash:
        config.stash[_LOADED] = load_tests(open_project(str(_definitions(config))))
    return config.stash[_LOADED]


def _results(item: QueryTestItem) -> dict[str, QueryTestResult]:
    from airflow_dynamic_tables.cli.commands.query_tests import results_without_arguments

    config = item.config
    definitions_path = _definitions(config)
    if _RESULTS not in config.stash and definitions_path is not None:
        definitions, _, _ = _loaded(config)
        tests = [chosen.test for chosen in item.session.items if isinstance(chosen, QueryTestItem)]
        results = results_without_arguments(definitions_path, definitions, tests)
        config.stash[_RESULTS] = {result.full_name: result for result in results}
    return config.stash[_RESULTS]
