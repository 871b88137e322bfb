"""Validation of declared tables: names, queries, partition keys, options, schedules and settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from airflow_dynamic_tables.core.cron import cron_for
from airflow_dynamic_tables.core.formats import FORMATS, VIEW, streamed_formats
from airflow_dynamic_tables.core.identifiers import TableIdentifier, check_name, dropped_rows_name
from airflow_dynamic_tables.core.limits import QUERY_CHARACTERS
from airflow_dynamic_tables.core.mistakes import Mistake, did_you_mean
from airflow_dynamic_tables.core.partition_dates import (
    FORMATTER,
    MissingDateFieldError,
    check_dates,
    check_formatters,
    formatter_problem,
    scheduled_partitions,
)
from airflow_dynamic_tables.core.partition_transforms import plain_keys, rejoined
from airflow_dynamic_tables.core.partitions import describe
from airflow_dynamic_tables.core.refresh.expectations import Action
from airflow_dynamic_tables.core.refresh.frozen import Calendar, FrozenCondition, comparisons, holds
from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Allowed
from airflow_dynamic_tables.core.refresh.plan import DROPPED_COLUMNS
from airflow_dynamic_tables.core.refresh.reasons import LatePolicy, PartitionEvents
from airflow_dynamic_tables.core.refresh.sources import option_problem, path_problem
from airflow_dynamic_tables.core.schedule import RefreshMode, StrategyName
from airflow_dynamic_tables.core.sinks import OPTIONS, option_problems
from airflow_dynamic_tables.core.streaming import source_watermarks as source_options
from airflow_dynamic_tables.core.streaming.partition_commits import OPTIONS as COMMIT_OPTIONS
from airflow_dynamic_tables.core.streaming.partition_commits import commit_problems
from airflow_dynamic_tables.core.streaming.source_watermarks import WholeBy
from airflow_dynamic_tables.definitions.building import (
    OF_SCHEDULES,
    Named,
    asset_reference,
    awaited_data,
    calendar_time,
    dag_of,
    formatters,
    mode_decision,
)
from airflow_dynamic_tables.definitions.declarations.source import SourceDeclaration
from airflow_dynamic_tables.definitions.declarations.table import ACTIONS, ExpectationDeclaration, TableDeclaration
from airflow_dynamic_tables.definitions.entries import Entry, Expansion, format_of
from airflow_dynamic_tables.definitions.model import NO_SCHEDULE, OF_ONE_DAG, OWN_DAG, DynamicTable
from airflow_dynamic_tables.definitions.queries.text import (
    Analysis,
    FrozenConditionError,
    analyse_condition,
    parse_frozen,
    refusals,
)
from airflow_dynamic_tables.definitions.statements.values import SQL_SUFFIX
from airflow_dynamic_tables.definitions.table_problems import foreign_problems, key_problems, output_problems

_CALENDAR_KEYS: tuple[Literal["start_date", "end_date"], ...] = ("start_date", "end_date")

_NO_CALENDAR = "no calendar has this time in UTC: it needs the years 1 to 9999; write a time in this century, or leave it out"


def source_mistakes(entry: Entry, declared: SourceDeclaration) -> Iterator[Mistake]:
    """Yield the mistakes of a source."""
    for option in declared.options:
        if problem := option_problem(declared.format, option):
            yield entry.document.key_mistake((*entry.location, "options", option), problem)
    if problem := path_problem(declared.path):
        yield entry.mistake("path", problem)
    if declared.version_column is not None and not FORMATS[declared.format].in_server:
        problem = f"changes of a {declared.format} source are found without 'version_column'; remove it"
        yield entry.document.key_mistake((*entry.location, "version_column"), problem)
    if declared.max_age is not None and (problem := _age_problem(declared)):
        yield entry.mistake("max_age", problem)
    if entry.formats and (problem := entry.formats.source_problem(entry.identifier.catalog, declared.format)):
        yield entry.mistake("format", problem)
    if entry.dropped.isdisjoint({"watermark", "options", "complete_when", "partitioned_by"}):
        yield from _watermark_mistakes(entry, declared)


def _age_problem(declared: SourceDeclaration) -> str | None:
    """Return why the time of the last change of a source is not known."""
    traits = FORMATS[declared.format]
    if traits.in_server or traits.endless is not None or declared.format == VIEW:
        return f"a source of format {declared.format} does not tell when its rows changed last; take 'max_age' away"
    if declared.watermark == "source":
        return "a source with 'watermark: source' is as new as its last complete partition; take 'max_age' away"
    return None


def _watermark_mistakes(entry: Entry, declared: SourceDeclaration) -> Iterator[Mistake]:
    traits = FORMATS[declared.format]
    for option, problem in source_options.option_problems(declared.options, declared.partitioned_by or None):
        place = (*entry.location, "options", option)
        unknown = option not in source_options.OPTIONS
        yield entry.document.key_mistake(place, problem) if unknown else entry.mistake("options", problem, option)
    if declared.watermark != "source":
        needs = "takes effect only with 'watermark: source'; add that, or remove it"
        for option in filter(source_options.OPTIONS.__contains__, declared.options):
            yield entry.document.key_mistake((*entry.location, "options", option), f"{option!r} {needs}")
        if declared.complete_when is not None:
            yield entry.mistake("complete_when", f"'complete_when' {needs}")
        if declared.watermark is not None and not traits.tells_news:
            yield entry.mistake("watermark", f"a source of format {declared.format} tells no stream what is new in it")
    elif not (traits.is_folder or traits.lists_partitions):
        why = "no marker lies in one, and no metastore adds it when it is whole; read a folder of files or a Hive table instead"
        yield entry.mistake("watermark", f"a source of format {declared.format} has no partitions to look for: {why}")
    elif traits.is_folder and not declared.partitioned_by:
        yield entry.mistake("watermark", "a watermark needs partitions; name their keys under 'partitioned_by'")
    else:
        if source_options.INTERVAL not in declared.options:
            message = f"a watermark needs option '{source_options.INTERVAL}': how much time a partition holds, e.g. 1 hour"
            yield entry.mistake("watermark", message)
        if traits.is_folder and declared.complete_when is not None and declared.complete_when.by is WholeBy.METASTORE:
            yield entry.mistake("complete_when", "no metastore knows the partitions of a folder; use {file: _SUCCESS}")


def table_mistakes(entry: Entry, declared: TableDeclaration, expansion: Expansion | None) -> Iterator[Mistake]:
    """Yield the mistakes of a table; consequences of values that were dropped are omitted."""
    if entry.dropped.isdisjoint({"freshness", "refresh_mode", "schedule"}):
        yield from _schedule_mistakes(entry, declared)
        yield from _continuous_mistakes(entry, declared)
        if entry.dropped.isdisjoint({"continuous", "format"}):
            yield from stream_mistakes(entry, declared)
    if entry.dropped.isdisjoint({*_CALENDAR_KEYS, "timezone"}):
        yield from _calendar_mistakes(entry, declared)
    if "format" not in entry.dropped and (problem := misplaced(entry, declared)):
        yield entry.mistake("format" if declared.format else "name", problem)
    if "partitioned_by" not in entry.dropped:
        yield from key_mistakes(entry, declared)
        yield from _event_mistakes(entry, declared)
    if entry.dropped.isdisjoint({"partitioned_by", "options"}):
        yield from _formatter_mistakes(entry, declared)
        yield from option_mistakes(entry, declared, expansion is None or expansion.may_have_watermark)
    outputs = expansion.analysis.outputs if expansion is not None else None
    yield from _expectation_mistakes(entry, declared, outputs)
    if entry.dropped.isdisjoint({"keep_dropped", "expectations", "format", "freshness", "refresh_mode"}):
        yield from _dropped_mistakes(entry, declared, outputs)
    if expansion is not None:
        yield from _spelling_mistakes(entry, declared, expansion.analysis)
    if expansion is not None and expansion.analysis.outputs is not None:
        yield from _output_mistakes(entry, declared, expansion.analysis)


def upstream_mistakes(
    entry: Entry, declared: TableDeclaration, expansion: Expansion | None, named: Named, read: Iterable[Entry]
) -> Iterator[Mistake]:
    """Yield mistakes of the keys that say how a table treats each of the tables that its query reads.

    :param read: the entries of the tables that its query reads, as far as they are defined.
    """
    dynamic = {one.identifier for one in read if isinstance(one.declaration, TableDeclaration)}
    for key, names in (("on_change", declared.on_change), ("max_lag", declared.max_lag)):
        for name in names:
            try:
                identifier, _ = named(name)
            except ValueError as error:
                yield entry.mistake(key, str(error), name)
                continue
            if expansion is not None and identifier not in expansion.origins:
                yield entry.mistake(key, f"the query does not read {identifier}", name)
            elif expansion is not None and key == "max_lag" and identifier not in dynamic:
                yield entry.mistake(key, f"{identifier} is no dynamic table, so no refresh waits for it", name)
    if declared.max_lag and declared.partitioned_by and vars(declared.over(entry.defaults))["late"] is LatePolicy.IGNORE:
        because = "rows that a table adds after a refresh that did not wait for them would never be noticed"
        yield entry.mistake("max_lag", f"'max_lag' cannot be used with late: ignore, because {because}; use report or refresh")


def frozen_mistakes(entry: Entry, declared: TableDeclaration, read: Iterable[Entry]) -> Iterator[Mistake]:
    """Yield mistakes of the condition of frozen partitions.

    :param read: the entries of the tables that its query reads, as far as they are defined.
    """
    frozen: str | None = vars(declared)["frozen"]
    if frozen is None or not entry.dropped.isdisjoint({"freshness", "refresh_mode", "partitioned_by", "options"}):
        return
    try:
        condition = parse_frozen(frozen)
    except FrozenConditionError as error:
        yield entry.document.text_mistake((*entry.location, "frozen"), error.problem.offset, error.problem.message)
        return
    decision, patterns = mode_decision(entry, declared), formatters(entry, declared)
    problems = list(_frozen_problems(condition, decision.mode, declared.partition_keys, patterns))
    for source in read:
        if isinstance(source.declaration, SourceDeclaration) and source.declaration.watermark == "source":
            problems.append(
                ("", f"the watermark of {source.identifier} decides which partitions are refreshed; take 'frozen' away")
            )
    if not problems and not decision.mode.is_incremental:
        for time in _SOME_TICKS:
            calendar = Calendar(patterns, "UTC", time)
            for spec in scheduled_partitions(time, decision.freshness, patterns, "UTC"):
                if not problems and holds(condition, spec, calendar):
                    message = f"a refresh of the schedule makes partitions that are frozen already, such as {describe(spec)} on"
                    problems.append(("", f"{message} {time:%Y-%m-%d %H:%M}; write a longer time than the freshness"))
    for key, problem in problems:
        offset = frozen.find(key) if key else 0
        yield entry.document.text_mistake((*entry.location, "frozen"), max(offset, 0), problem)


_SOME_TICKS = (datetime(9000, 3, 1, tzinfo=UTC), datetime(9000, 3, 1, 13, 30, tzinfo=UTC))
"""Times at which no scheduled partition may be frozen."""


def _frozen_problems(
    condition: FrozenCondition, mode: RefreshMode, keys: Sequence[str], patterns: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the keys of a condition with problems; the key is empty for a problem of the table."""
    if mode is RefreshMode.CONTINUOUS:
        yield "", "a table in continuous mode has no frozen partitions; take 'frozen' away, or write a schedule's freshness"
        return
    for each in comparisons(condition):
        pattern = patterns.get(each.key)
        if each.key not in plain_keys(keys):
            yield each.key, f"{each.key!r} is no partition key{did_you_mean(each.key, keys)}; only keys can be compared"
        elif pattern is None and not mode.is_incremental:
            advice = "only keys of time can be compared, or write 'refresh_mode: incremental'"
            yield each.key, f"{each.key!r} has no date formatter, and a refresh of the schedule replaces all its values; {advice}"
        elif each.is_of_time and (pattern is None or "y" not in re.sub("'[^']*'", "", pattern)):
            option = f"'partition.fields.{each.key}.date-formatter'"
            yield each.key, f"a key that is compared with the time needs option {option} with a year, such as yyyy-MM-dd"
        elif pattern is not None and not each.is_of_time:
            try:
                check_dates({each.key: str(each.value)}, {each.key: pattern})
            except ValueError as error:
                yield each.key, str(error)


def incremental_mistakes(entry: Entry, declared: TableDeclaration, read: Iterable[Entry]) -> Iterator[Mistake]:
    """Yield mistakes of a table whose refreshes are incremental.

    :param read: the entries of the tables that its query reads, as far as they are defined.
    """
    if not entry.dropped.isdisjoint({"freshness", "refresh_mode"}):
        return
    mode = mode_decision(entry, declared).mode
    is_divided = vars(declared)["max_partitions_per_commit"] is not None
    if not mode.is_incremental:
        if is_divided:
            message = "only incremental refreshes make several commits; write 'refresh_mode: incremental', or take it away"
            yield entry.mistake("max_partitions_per_commit", message)
        return
    if is_divided and not declared.partitioned_by:
        yield entry.mistake("max_partitions_per_commit", "the table has no partitions; name their keys in 'partitioned_by'")
    place = "refresh_mode" if declared.refresh_mode else "name"
    said = f"refresh_mode: {mode.lower()}"
    for key in ("late", "initial"):
        if getattr(declared, key) is not None:
            yield entry.mistake(key, f"with '{said}' every partition whose sources changed is refreshed; take {key!r} away")
    if vars(declared.over(entry.defaults))["skip_unchanged"] is False:
        yield entry.mistake(place, f"'skip_unchanged: false' refreshes all rows, and '{said}' those that changed; take one away")
    if mode is RefreshMode.INCREMENTAL_STRICT and not declared.partitioned_by:
        yield entry.mistake(place, "only partitions are refreshed in this mode, so 'partitioned_by' must name their keys")
    if (traits := FORMATS.get(format_of(entry, declared))) is not None and traits.in_server:
        yield entry.mistake(place, "its server does not tell which rows others changed; write 'refresh_mode: full'")
    for source in read:
        if isinstance(source.declaration, SourceDeclaration) and source.declaration.watermark == "source":
            message = f"the watermark of {source.identifier} decides which partitions are refreshed; write 'refresh_mode: full'"
            yield entry.mistake(place, message)


def waiting_mistakes(entry: Entry, declared: TableDeclaration, named: Named) -> Iterator[Mistake]:
    """Yield mistakes of what a table waits for: the assets that refresh it, or their absence, and data."""
    for number, awaited in enumerate(declared.wait_for):
        try:
            awaited_data(entry, awaited, named)
        except ValueError as error:
            yield entry.mistake("wait_for", str(error), number)
    for place, item in declared.on.located() if declared.on else ():
        try:
            asset = asset_reference(item, named)
        except ValueError as error:
            yield entry.mistake("on", str(error), *place)
        else:
            if asset.table == entry.identifier:
                yield entry.mistake("on", "a table cannot be refreshed by its own updates", *place)
    if declared.on is not None and dag_of(declared.over(entry.defaults)) is not None:
        yield entry.mistake("on", "updates refresh one table, so it has a DAG of its own; write 'dag: none', or take 'on' away")
    schedule = declared.schedule or entry.defaults.schedule
    if schedule == NO_SCHEDULE and declared.on is None and entry.dropped.isdisjoint({"on", "schedule"}):
        yield entry.mistake("schedule", "nothing would refresh this table; name assets under 'on', or write a cron expression")


def group_mistakes(
    tables: Iterable[DynamicTable], entries: Mapping[TableIdentifier, Entry]
) -> list[tuple[TableIdentifier, Mistake]]:
    """Return the tables that disagree with the first table of their DAG, with their mistakes."""
    first_of: dict[str, DynamicTable] = {}
    mistakes: list[tuple[TableIdentifier, Mistake]] = []
    for table in tables:
        first = first_of.setdefault(table.dag, table) if table.dag else table
        for key in OF_ONE_DAG:
            if getattr(table, key) != getattr(first, key):
                message = (
                    f"{key!r} is not as in {first.identifier} ({first.path.name}, line {first.line}), which is in the same DAG "
                    f"{table.dag!r}: tables of one DAG agree on it; say it in 'defaults', or take another 'dag'"
                )
                mistakes.append((table.identifier, entries[table.identifier].mistake(key, message)))
    return mistakes


def forbidden_mistakes(entry: Entry, declared: TableDeclaration, allowed: Allowed) -> Iterator[Mistake]:
    """Yield mistakes of predicates that need more than is allowed; queries are checked when they are read."""
    for number, item in enumerate(declared.expectations):
        if item.predicate is not None and len(item.predicate) <= QUERY_CHARACTERS and allowed != EVERYTHING:
            place = (*entry.location, "expectations", number, "predicate")
            for problem in refusals(analyse_condition(item.predicate).needs, allowed):
                yield entry.document.text_mistake(place, problem.offset, problem.message)


def _event_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of a table whose partitions have events; defaults are ignored."""
    if vars(declared)["partition_events"] is not PartitionEvents.CHANGED:
        return
    if not declared.partitioned_by:
        yield entry.mistake("partition_events", "the table has no partitions; name its keys under 'partitioned_by', or remove it")
    if option := next(filter(COMMIT_OPTIONS.__contains__, declared.options), None):
        complete = f"option {option!r} gives complete partitions an event"
        yield entry.mistake("partition_events", f"{complete}, and this would give changed ones the same; remove one of them")


def _schedule_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    decision = mode_decision(entry, declared)
    key = "freshness" if declared.freshness else "refresh_mode" if declared.refresh_mode else "name"
    if decision.mode is not RefreshMode.CONTINUOUS and not (declared.schedule or entry.defaults.schedule):
        try:
            cron_for(decision.freshness)
        except ValueError as error:
            yield entry.mistake(key, str(error))


def _continuous_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of keys that apply only to scheduled tables; defaults are ignored."""
    decision = mode_decision(entry, declared)
    for key in (*OF_SCHEDULES, "on") if decision.mode is RefreshMode.CONTINUOUS else ():
        if getattr(declared, key) not in (None, OWN_DAG):
            said = f"{decision.reason}, so this table is refreshed all the time, by a DAG of its own, which takes no {key!r}"
            yield entry.mistake(key, f"{said}; take it away, or write 'refresh_mode: full'")


def _calendar_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    times: list[datetime] = []
    merged = declared.over(entry.defaults)
    for key in _CALENDAR_KEYS:
        try:
            time = calendar_time(merged, key)
        except OverflowError:
            yield entry.mistake(key, _NO_CALENDAR)
        else:
            times += [time] if time else []
    if len(times) == len(_CALENDAR_KEYS) and times != sorted(times):
        yield entry.mistake("end_date" if declared.end_date else "start_date", "'end_date' is before 'start_date'")


def _formatter_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    keys = plain_keys(declared.partition_keys)
    for option, pattern in declared.options.items():
        match = FORMATTER.fullmatch(option)
        if match and match["column"] not in keys:
            hidden = any(match["column"] in key for key in declared.partition_keys if key not in keys)
            why = "; a date formatter is for a key that is a column" if hidden else did_you_mean(match["column"], keys)
            message = f"{match['column']!r} is no partition key of this table{why}"
            yield entry.document.key_mistake((*entry.location, "options", option), message)
        elif match:
            try:
                check_formatters({match["column"]: pattern})
            except MissingDateFieldError:
                pass  # the formatter of another key may have it
            except ValueError as error:
                yield entry.mistake("options", str(error), option)
    try:
        check_formatters(formatters(entry, declared))
    except ValueError as error:
        if isinstance(error, MissingDateFieldError):  # others are reported at their options already
            yield entry.mistake("options", str(error))


def _spelling_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    """Yield mistakes of formatters whose values do not match the type of the column, never or not always."""
    types = dict(zip(analysis.outputs or (), analysis.types or (), strict=False))
    for option, pattern in declared.options.items():
        match = FORMATTER.fullmatch(option)
        kind = types.get(match["column"]) if match else None
        if kind is not None and _is_pattern(pattern) and (problem := formatter_problem(pattern, kind)):
            yield entry.mistake("options", problem, option)


def _is_pattern(pattern: str) -> bool:
    """Return whether a pattern is valid by itself; invalid ones are reported already."""
    try:
        check_formatters({"": pattern})
    except ValueError as error:
        return isinstance(error, MissingDateFieldError)
    return True


def _output_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    names = [name for name in analysis.outputs or () if name]
    known = frozenset(names)
    if "partitioned_by" not in entry.dropped:
        yield from key_output_mistakes(entry, declared, analysis)
    for column in declared.columns:
        if column not in known:
            message = f"the query returns no column {column!r}{did_you_mean(column, names)}"
            yield entry.document.key_mistake((*entry.location, "columns", column), message)
    listed = [column for column in declared.columns if column in known]
    if entry.document.path.suffix == SQL_SUFFIX and listed != [name for name in dict.fromkeys(names) if name in declared.columns]:
        yield entry.mistake("columns", f"a column list orders nothing: the query returns {', '.join(names)}; list them so")
    uses = Counter(name.lower() for name in names)
    for name in sorted(name for name, count in uses.items() if count > 1):
        yield entry.mistake("query", f"the query returns column {name!r} more than once; give each its own name with AS")


def _expectation_mistakes(entry: Entry, declared: TableDeclaration, outputs: tuple[str | None, ...] | None) -> Iterator[Mistake]:
    names: set[str] = set()
    for number, item in enumerate(declared.expectations):
        if item.full_name in names:
            message = f"expectation {item.full_name!r} is listed twice; give one of them another 'name'"
            yield entry.mistake("expectations", message, number)
        names.add(item.full_name)
        legal = [action.value for action in ACTIONS[item.kind]]
        if item.action is not None and item.action not in legal:
            message = f"{item.action!r} is no action of {item.kind}; use {' | '.join(legal)}{did_you_mean(item.action, legal)}"
            yield entry.mistake("expectations", message, number, "action")
        if item.across_partitions and (problem := _across_problem(entry, declared, item)):
            yield entry.mistake("expectations", problem, number, "across_partitions")
        yield from _column_mistakes(entry, item, number, None if outputs is None else [name for name in outputs if name])


def _across_problem(entry: Entry, declared: TableDeclaration, item: ExpectationDeclaration) -> str | None:
    """Return why an expectation cannot compare with other partitions, with the remedy."""
    if item.kind != "unique":
        return f"only 'unique' compares rows with those of other partitions, not {item.kind!r}; take it away"
    if not declared.partitioned_by:
        return "the table has no partitions, and all its rows are compared; take it away"
    if (traits := FORMATS.get(format_of(entry, declared))) is not None and traits.in_server:
        return f"the rows of other partitions are not read from a table of format {traits.name}; take it away"
    return None


def _dropped_mistakes(entry: Entry, declared: TableDeclaration, outputs: tuple[str | None, ...] | None) -> Iterator[Mistake]:
    """Yield mistakes of a table that keeps the rows that its expectations drop."""
    keep: timedelta | None = vars(declared)["keep_dropped"]
    if keep is None:
        return
    if keep < _DAY or keep % _DAY:
        yield entry.mistake("keep_dropped", "'keep_dropped' must be a number of days, such as 30 days")
    if all(item.action != Action.DROP for item in declared.expectations):
        yield entry.mistake(
            "keep_dropped", "no expectation has 'action: drop', so there are no rows to keep; take 'keep_dropped' away"
        )
    if mode_decision(entry, declared).mode is RefreshMode.CONTINUOUS:
        message = "a table in continuous mode does not keep dropped rows; take 'keep_dropped' away, or write 'refresh_mode: full'"
        yield entry.mistake("keep_dropped", message)
    table_format = format_of(entry, declared)
    catalog = entry.formats
    is_stepwise = catalog is not None and table_format in catalog.stepwise and table_format not in catalog.atomic
    if (traits := FORMATS.get(table_format)) is not None and (traits.in_server or is_stepwise):
        where = f" of a catalog of type {catalog.type}" if is_stepwise and catalog is not None else ""
        message = f"a table of format {table_format}{where} does not keep dropped rows; take 'keep_dropped' away"
        yield entry.mistake("keep_dropped", message)
    try:
        check_name(dropped_rows_name(entry.identifier.table))
    except ValueError as error:
        yield entry.mistake("keep_dropped", f"the name of the table of dropped rows is too long: {error}")
    for name in outputs or ():
        if name is not None and name.lower() in DROPPED_COLUMNS:
            message = f"the table of dropped rows has a column {name!r} of its own; rename that of the query"
            yield entry.mistake("keep_dropped", message)


def dropped_name_mistakes(
    tables: Mapping[TableIdentifier, DynamicTable], entries: Mapping[TableIdentifier, Entry]
) -> Iterator[tuple[TableIdentifier, Mistake]]:
    """Yield the tables whose dropped rows would be kept in another declared table or view, with their mistakes."""
    for identifier, table in tables.items():
        name = dropped_rows_name(identifier.table)
        other = entries.get(replace(identifier, table=name)) if table.keep_dropped is not None else None
        if other is not None and not isinstance(other.declaration, SourceDeclaration):
            where = f"{other.document.path}:{other.document.line(other.location)}"
            message = f"dropped rows are kept in {other.identifier}, which is declared in {where}; rename that"
            yield identifier, entries[identifier].mistake("keep_dropped", message)


_DAY = timedelta(days=1)


def _column_mistakes(entry: Entry, item: ExpectationDeclaration, number: int, returned: list[str] | None) -> Iterator[Mistake]:
    """Yield mistakes of columns that the query does not return; ``returned`` is ``None`` when the columns are unknown."""
    folded = None if returned is None else {name.lower() for name in returned}

    def unknown(column: str) -> str | None:
        if folded is None or column.lower() in folded:
            return None
        return f"the query returns no column {column!r}{did_you_mean(column, returned or ())}"

    for kind, columns in (("not_null", item.not_null), ("unique", item.unique), ("relationship", item.relationship)):
        for position, column in enumerate(columns or ()):
            if message := unknown(column):
                yield entry.mistake("expectations", message, number, kind, position)
    for column in item.accepted_values or ():
        if message := unknown(column):
            yield entry.document.key_mistake((*entry.location, "expectations", number, "accepted_values", column), message)
    if item.predicate is not None:
        place = (*entry.location, "expectations", number, "predicate")
        if len(item.predicate) > QUERY_CHARACTERS:
            message = f"the predicate has more than {QUERY_CHARACTERS:,} characters"
            yield entry.document.text_mistake(place, QUERY_CHARACTERS, message)
            return
        condition = analyse_condition(item.predicate)
        for problem in condition.problems:
            yield entry.document.text_mistake(place, problem.offset, problem.message)
        for span in condition.columns:
            if message := unknown(span.text):
                yield entry.document.text_mistake(place, span.start, message)


def key_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of the keys by themselves, and for the format of the table."""
    for place, problem in key_problems(rejoined(declared.partitioned_by), format_of(entry, declared)):
        yield entry.mistake("partitioned_by", problem, place)


def key_output_mistakes(entry: Entry, declared: TableDeclaration, analysis: Analysis) -> Iterator[Mistake]:
    """Yield mistakes of keys whose column the query does not return, or not in a suitable type, as far as its text tells."""
    for place, problem in output_problems(rejoined(declared.partitioned_by), analysis):
        yield entry.mistake("partitioned_by", problem, place)


def option_mistakes(entry: Entry, declared: TableDeclaration, has_watermark: bool) -> Iterator[Mistake]:
    """Yield mistakes in the options of a table, except date formatters; an unknown option is reported at its key.

    :param has_watermark: whether partitions of a source that it reads may define a watermark.
    """
    sound = entry.dropped.isdisjoint({"freshness", "refresh_mode"})
    is_continuous = not sound or mode_decision(entry, declared).mode is RefreshMode.CONTINUOUS
    table_format = format_of(entry, declared)
    problems = commit_problems(declared.options, is_continuous, bool(formatters(entry, declared)), has_watermark, table_format)
    others = (*option_problems(declared.options, table_format), *foreign_problems(declared.options, table_format))
    for option, problem in (*problems, *others):
        unknown = option not in (*COMMIT_OPTIONS, *OPTIONS)
        place = (*entry.location, "options", option)
        yield entry.document.key_mistake(place, problem) if unknown else entry.mistake("options", problem, option)


def misplaced(entry: Entry, declared: TableDeclaration) -> str | None:
    """Return why the catalog cannot hold the table; ``None`` when it can, or the catalogs file does not determine it."""
    if entry.formats is None:
        return None
    atomicity = declared.atomicity or entry.defaults.atomicity or "staged"
    return entry.formats.problem(entry.identifier.catalog, format_of(entry, declared), atomicity)


def stream_mistakes(entry: Entry, declared: TableDeclaration) -> Iterator[Mistake]:
    """Yield mistakes of a declared stream that cannot append to the table.

    Mistakes that depend on its sources are found by the stream itself.
    """
    continuous = declared.continuous.over(entry.defaults.continuous).built()
    table_format, fitting = format_of(entry, declared), streamed_formats()
    if continuous.strategy is not StrategyName.STREAM or table_format in fitting:
        return
    if mode_decision(entry, declared).mode is RefreshMode.CONTINUOUS:
        instead = f"use format {' | '.join(fitting)}, or 'strategy: {StrategyName.MICRO_REFRESH}'"
        message = f"a stream adds rows in one step, which format {table_format} cannot; {instead}"
        if declared.continuous.strategy is not None:
            yield entry.mistake("continuous", message, "strategy")
        else:
            yield entry.mistake("format" if declared.format else "name", message)


def renaming_mistakes(
    tables: Mapping[TableIdentifier, DynamicTable], entries: Mapping[TableIdentifier, Entry]
) -> Iterator[tuple[TableIdentifier, Mistake]]:
    """Yield the tables whose former name is not unique, with their mistakes."""
    first_of: dict[TableIdentifier, TableIdentifier] = {}
    for name, table in tables.items():
        entry = entries[name]
        try:
            former = table.former_name()
        except ValueError as error:
            yield name, entry.mistake("renamed_from", f"{error}")
            continue
        if former is None:
            continue
        first = first_of.setdefault(former, name)
        if former in entries:
            other = entries[former]
            where = f"{other.document.path}:{other.document.line(other.location)}"
            message = f"{former} is still declared in {where}; its data cannot be those of {name}, too"
            yield name, entry.mistake("renamed_from", message)
        elif first != name:
            yield name, entry.mistake("renamed_from", f"{first} was renamed from {former}, too; only one can have its data")
