"""What is spoiled, and what must come of it: a value that can be worked with, or a mistake with its place."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace

import yaml

from airflow_dynamic_tables.catalog.file import read_entries
from airflow_dynamic_tables.core.limits import MESSAGE_CHARACTERS, MISTAKES_PER_FILE
from airflow_dynamic_tables.core.mistakes import Mistake
from airflow_dynamic_tables.core.plain import to_plain
from airflow_dynamic_tables.core.refresh.plan import RefreshPlan, RefreshResult
from airflow_dynamic_tables.definitions.cache import Cache, normalised, restored
from airflow_dynamic_tables.definitions.loader import load_sound_definitions
from airflow_dynamic_tables.definitions.model import Conventions, DynamicTable
from airflow_dynamic_tables.definitions.queries.editing import replace_tables
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.parsing import parse_script, pointed
from airflow_dynamic_tables.exceptions import ConfigurationError, DefinitionError, StageRejectedError
from airflow_dynamic_tables.formats.base import CommitRequest
from airflow_dynamic_tables.formats.commits import check_result
from airflow_dynamic_tables.operators.run_arguments import read_request
from airflow_dynamic_tables.services.refresh.preview import preview
from airflow_dynamic_tables.services.refresh.requests import requested_partitions
from tests.support.fuzzing import mutations, seeds

NO_CACHE = Cache(None)
OPEN = Conventions(variables=("*",))

BESIDE = "dynamic_tables:\n  - {name: beside.beside.beside, freshness: 1 day, query: SELECT 1 AS x}\n"
"""A file that must be read whatever stands in the one beside it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of input: how a mutant is made, and what becomes of it; ``check`` raises when that is not as it must be."""

    make: Callable[[Random], str]
    check: Callable[[str], None]


def _spoiled_yaml(sound: Sequence[str]) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        chosen = random.choice(sound)
        if random.random() < 0.4:
            with contextlib.suppress(yaml.YAMLError, ValueError):
                return mutations.as_yaml(mutations.tree(random, yaml.safe_load(chosen)))
        return mutations.text(random, chosen, sound)

    return make


def _spoiled_json(sound: Sequence[str]) -> Callable[[Random], str]:
    def make(random: Random) -> str:
        chosen = random.choice(sound)
        if random.random() < 0.8:
            return mutations.as_json(mutations.tree(random, json.loads(chosen)))
        return mutations.text(random, chosen, sound)

    return make


def _spoiled_statement(random: Random) -> str:
    return mutations.text(random, random.choice(seeds.STATEMENTS), seeds.STATEMENTS)


def _spoiled_script(random: Random) -> str:
    return mutations.text(random, random.choice(seeds.SCRIPTS), (*seeds.SCRIPTS, *seeds.STATEMENTS))


def _spoiled_conf(random: Random) -> str:
    return mutations.as_json(mutations.tree(random, random.choice(seeds.CONFS)))


def check_definitions(text: str) -> None:
    """Tables that can be planned, kept and given back, and mistakes at their places; the file beside it is read."""
    _check_file("x.yaml", text)


def check_script(text: str) -> None:
    """The same for a file of statements; what is wrong with one can be shown with a caret."""
    _check_file("x.sql", text)
    for mistake in parse_script(text, Path("x.sql")).mistakes:
        assert pointed(text, mistake).endswith("^")


def _check_file(name: str, text: str) -> None:
    for file in ("x.yaml", "x.sql"):
        Path(file).unlink(missing_ok=True)
    Path(name).write_bytes(text.encode("utf-8", errors="surrogatepass"))
    Path("y.yaml").write_text(BESIDE)
    defined, mistakes = load_sound_definitions(Path(), conventions=OPEN, cache=NO_CACHE)
    assert "beside.beside.beside" in {str(name) for name in defined.tables}
    _check_mistakes(mistakes)
    for table in defined.tables.values():
        _check_table(table)
    for source in defined.sources.values():
        json.dumps(to_plain(source), allow_nan=False).encode()


def _check_table(table: DynamicTable) -> None:
    plan = preview(table, seeds.DAY, {})
    assert replace_tables(analyse(table.expanded_query), dict.fromkeys(table.upstream, "v"))
    assert plan.statement
    kept = json.loads(json.dumps(normalised(table), allow_nan=False))
    assert normalised(restored(kept)) == kept


def check_statement(statement: str) -> None:
    data = {
        "sources": [{"name": name, "format": "iceberg"} for name in ("lake.raw.orders", "lake.raw.log", "lake.crm.customers")],
        "views": [{"name": "v", "query": statement}],
        "dynamic_tables": [
            {"name": "t", "freshness": "1 day", "query": statement},
            {"name": "u", "freshness": "1 day", "query": "SELECT * FROM v", "expectations": [{"predicate": statement}]},
        ],
    }
    defaults = {"catalog": "lake", "database": "sales"}
    check_definitions(mutations.as_yaml({"defaults": defaults, **data}))


def check_catalogs(text: str) -> None:
    Path("catalogs.yaml").write_bytes(text.encode("utf-8", errors="surrogatepass"))
    try:
        entries = read_entries(Path("catalogs.yaml"))
    except DefinitionError as error:
        _check_mistakes([mistake for mistake in error.mistakes if isinstance(mistake, Mistake)])
        return
    assert all(isinstance(value, str) for entry in entries for value in entry.params.values())


def check_conf(text: str) -> None:
    context = {
        "dag_run": SimpleNamespace(conf=json.loads(text), partition_date=None, run_after=seeds.DAY),
        "params": {},
        "ti": SimpleNamespace(id="t1", dag_id="dag", run_id="run", task_id="refresh"),
    }
    for table in _tables():
        try:
            request = read_request(context, table, {})
            str(requested_partitions(request))
        except ConfigurationError as error:
            _check_sentence(str(error))


def check_plan(text: str) -> None:
    try:
        plan = RefreshPlan.from_json(text)
    except ValueError as error:
        _check_sentence(str(error))
        return
    assert RefreshPlan.from_json(plan.to_json()) == plan or "NaN" in text


def check_result_of_job(text: str) -> None:
    (sound,) = seeds.plans()
    plan = RefreshPlan.from_json(sound)
    try:
        result = RefreshResult.from_json(text)
        request = CommitRequest(result, plan.data_timestamp, {}, plan.partition_keys, plan.partitions)
        check_result(request, plan.token, plan.stage)
    except (ValueError, StageRejectedError) as error:
        _check_sentence(str(error))
        return
    assert result.bytes >= 0 or "-" in text


TARGETS = {
    "definitions": Target(_spoiled_yaml(seeds.definitions()), check_definitions),
    "statement": Target(_spoiled_statement, check_statement),
    "script": Target(_spoiled_script, check_script),
    "catalogs": Target(_spoiled_yaml(seeds.catalogs()), check_catalogs),
    "conf": Target(_spoiled_conf, check_conf),
    "plan": Target(_spoiled_json(seeds.plans()), check_plan),
    "result": Target(_spoiled_json(seeds.results()), check_result_of_job),
}
_WEIGHTS = (6, 6, 4, 3, 2, 2, 2)


def mutant(number: int) -> tuple[str, str]:
    """The mutant of that number, always the same: the name of its target, and its text."""
    random = Random(number)
    name = random.choices(list(TARGETS), _WEIGHTS)[0]
    return name, TARGETS[name].make(random)


@cache
def _tables() -> tuple[DynamicTable, ...]:
    path = Path("sound.yaml")
    path.write_text(seeds.definitions()[0])
    try:
        return tuple(load_sound_definitions(path, conventions=OPEN, cache=NO_CACHE)[0].tables.values())
    finally:
        path.unlink()


def _check_mistakes(mistakes: Sequence[Mistake]) -> None:
    assert list(mistakes) == sorted(mistakes)
    by_file: dict[Path, int] = {}
    for mistake in mistakes:
        by_file[mistake.path] = by_file.get(mistake.path, 0) + 1
        assert "cannot be understood" not in mistake.message, mistake
        assert mistake.path.exists(), mistake
        lines = mistake.path.read_bytes().count(b"\n") + 1
        # What ends too early may be told behind the last line.
        assert 1 <= mistake.line <= lines + 1, mistake
        assert mistake.column >= 1, mistake
        _check_sentence(mistake.message)
    assert max(by_file.values(), default=0) <= MISTAKES_PER_FILE + 1


def _check_sentence(words: str) -> None:
    assert 0 < len(words) <= 3 * MESSAGE_CHARACTERS, f"{len(words)} letters: {words[:1000]}"
    assert "\n" not in words, words
