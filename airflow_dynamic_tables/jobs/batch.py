"""One batch refresh: bind the sources, run the query, write into the stage, and return the result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own habit
from pyspark.sql.types import StructType

from airflow_dynamic_tables.core.identifiers import quote
from airflow_dynamic_tables.core.partition_transforms import hidden_keys, plain_keys, source_column
from airflow_dynamic_tables.core.refresh.plan import (
    DROPPED_COLUMNS,
    DroppedRows,
    FunctionBinding,
    Merge,
    RefreshPlan,
    RefreshResult,
    StagedFile,
)
from airflow_dynamic_tables.core.schema import Column
from airflow_dynamic_tables.jobs.column_types import check_partition_key, ddl, storable
from airflow_dynamic_tables.jobs.comparing import difference, drift
from airflow_dynamic_tables.jobs.driver import Driver
from airflow_dynamic_tables.jobs.expectations import (
    check_dropped,
    dropped_rows,
    repeated,
    results,
    unmatched,
    violations_in_stage,
    without_dropped,
)
from airflow_dynamic_tables.jobs.files import exactly
from airflow_dynamic_tables.jobs.messages import message, refused
from airflow_dynamic_tables.jobs.query import at_schedule_time, check_columns, settle_settings
from airflow_dynamic_tables.jobs.readers import bind, check_spelling, frame_of
from airflow_dynamic_tables.jobs.servers import ServerTable
from airflow_dynamic_tables.jobs.writers import write


def refresh(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> RefreshResult:
    """Run the plan's query and write its rows below the plan's stage; the result file is written last.

    :raises ValueError: when the rows cannot be stored, e.g. a null in a partition key.
    :raises SchemaEvolutionError: when the columns do not fit the table; nothing is written.
    """
    if plan.stream is not None:
        raise ValueError(f"{plan.identifier} is kept fresh by a stream, which runs by spark-submit; give it such a connection")
    prepare(spark, plan, driver)
    for source in plan.sources:
        bind(spark, source, driver)
    with _version_of_internal_errors(spark):
        rows = storable(planned_rows(spark, plan, driver), driver.tell)
        result = store(spark, plan, driver, rows if plan.merge is None else _merged(spark, plan, plan.merge, rows, driver))
    if plan.compares is not None:
        schema = ", ".join(f"{quote(column.name)} {column.type}" for column in result.columns)
        stored, other = _stored(spark, plan, schema), frame_of(spark, plan.compares, driver)
        if plan.shows is None:
            result = replace(result, drift=drift(plan, stored, other))
        else:
            result = replace(result, difference=difference(plan.shows, stored, other))
    driver.write_text(plan.result_location, result.to_json())
    return result


@contextmanager
def _version_of_internal_errors(spark: SparkSession) -> Iterator[None]:
    """Add Spark's version to the errors that it calls internal: a version may parse syntax that only later ones can plan.

    :raises ValueError: instead of such an error.
    """
    try:
        yield
    except PySparkException as error:
        if not (words := message(error)).startswith("[INTERNAL_ERROR"):
            raise
        raise ValueError(refused(spark.version, words)) from error


def _merged(spark: SparkSession, plan: RefreshPlan, merge: Merge, rows: DataFrame, driver: Driver) -> DataFrame:
    """The rows of the planned partitions after new ones were merged into them; only the new ones if these are added."""
    if merge.only_adds:
        return rows
    former = frame_of(spark, merge.current, driver)
    former = former if plan.partitions.is_whole else former.where(plan.partitions.predicate)
    former.createOrReplaceTempView(merge.current.view)
    rows.createOrReplaceTempView(merge.new)
    return spark.sql(merge.statement)


def _stored(spark: SparkSession, plan: RefreshPlan, schema: StructType | str) -> DataFrame:
    """The rows below the plan's stage."""
    return spark.read.schema(schema).format(plan.file_format).load(exactly(plan.data_location))


def prepare(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> None:
    """Apply the settings of the query, check its permissions, and register its functions.

    :raises ValueError: when this deployment does not allow the query.
    """
    if unused := settle_settings(driver.settings, plan):
        named = ", ".join(f"{name}={value}" for name, value in sorted(unused.items()))
        driver.tell(f"Not used of this cluster's settings, because they change what a query means: {named}")
    driver.check_allowed(plan)
    for function in plan.functions:
        register(spark, function, driver)


def store(spark: SparkSession, plan: RefreshPlan, driver: Driver, rows_to_store: DataFrame) -> RefreshResult:
    """Write rows below the plan's stage.

    :param rows_to_store: in types that the table supports.
    :return: the result for the result file.
    """
    started = time.monotonic()
    if plan.dropped is not None:
        _check_names_of_dropped(rows_to_store)
    frame, dropped = without_dropped(rows_to_store, plan.expectations)
    columns = _fitting_columns(plan, frame)
    table = ServerTable(spark, plan.sink, plan.identifier, driver) if plan.sink is not None else None
    if table is not None:
        table.create(frame.schema)  # before the rows are computed, so that unsupported columns fail early
    write(frame, plan)
    written = time.monotonic()
    stored = _stored(spark, plan, frame.schema)
    rows, partitions, violations = _written(plan, stored)
    left_out = dropped()
    expectations = results(plan.expectations, {**violations, **_compared(spark, plan, driver, stored), **left_out})
    inspected = time.monotonic()
    table_bytes = table.fill(stored, rows) if table is not None else 0
    more = {"copy": round(time.monotonic() - inspected, 3)} if table is not None else {}
    if plan.dropped is not None and any(left_out.values()):
        _keep_dropped(spark, plan, plan.dropped, driver, rows_to_store, left_out)
        more["keep"] = round(time.monotonic() - inspected, 3)
    return RefreshResult(
        token=plan.token,
        application_id=driver.application_id,
        rows=rows,
        files=_staged_files(plan, driver, rows) if table is None else (),
        columns=columns,
        partitions=partitions,
        seconds={"write": round(written - started, 3), "inspect": round(inspected - written, 3), **more},
        expectations=expectations,
        table_bytes=table_bytes,
    )


def _compared(spark: SparkSession, plan: RefreshPlan, driver: Driver, stored: DataFrame) -> dict[str, int]:
    """Number of staged rows that violate the expectations that compare them with other rows, by name of the expectation."""
    others = _other_partitions(plan, driver, spark)
    referenced = {one.identifier: frame_of(spark, one, driver) for one in plan.references}
    return {**repeated(stored, plan.expectations, others), **unmatched(stored, plan, referenced, others)}


def _other_partitions(plan: RefreshPlan, driver: Driver, spark: SparkSession) -> DataFrame | None:
    """The rows of the table that the refresh does not replace, if an expectation compares with them."""
    if plan.compared is None:
        return None
    current = frame_of(spark, plan.compared, driver)
    return current.where(~F.coalesce(F.expr(plan.partitions.predicate), F.lit(False)))


def _check_names_of_dropped(rows: DataFrame) -> None:
    """Check that no column of the query has the name of one that the table of dropped rows has besides them.

    :raises ValueError: when one has.
    """
    if taken := [name for name in rows.columns if name.lower() in DROPPED_COLUMNS]:
        raise ValueError(f"the table of dropped rows has a column {taken[0]!r} of its own; rename that of the query")


def _keep_dropped(
    spark: SparkSession, plan: RefreshPlan, dropped: DroppedRows, driver: Driver, rows: DataFrame, violations: Mapping[str, int]
) -> None:
    """Write the rows that expectations drop to their own stage, with a result file."""
    writing = plan.of_dropped(dropped)
    (partition,) = writing.partitions
    frame = dropped_rows(rows, plan, dropped.at, partition)
    result = store(spark, writing, driver, frame)
    check_dropped(_stored(spark, writing, frame.schema), violations)
    # Dropped rows of a later refresh may have nulls in any column.
    columns = tuple(replace(column, nullable=True) for column in result.columns)
    driver.write_text(writing.result_location, replace(result, columns=columns).to_json())


def _fitting_columns(plan: RefreshPlan, frame: DataFrame) -> tuple[Column, ...]:
    """The columns of the rows. Columns that do not fit the table are rejected here, before the rows are computed."""
    for key in plain_keys(plan.partition_keys):
        check_partition_key(frame.schema[key].dataType, key)
    for hidden in hidden_keys(plan.partition_keys):
        if problem := hidden.type_problem(ddl(frame.schema[hidden.column].dataType)):
            raise ValueError(f"partition key {problem}")
    columns = tuple(
        Column(field.name, ddl(field.dataType), field.nullable, plan.comments.get(field.name)) for field in frame.schema.fields
    )
    plan.limits.check(columns)
    if plan.layout is not None:
        plan.layout.evolved(columns, plan.rebuild)
    return columns


def planned_rows(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> DataFrame:
    """The query's rows of the planned partitions, from views that are already bound.

    :raises ValueError: when Spark refuses the query, or it reads something else, or does not return the partition keys.
    """
    try:
        frame = _checked_query(spark, plan, driver)
        names = frame.columns  # a Spark Connect server only looks at the query now
    except AnalysisException as error:
        raise ValueError(refused(spark.version, message(error))) from error
    if missing := [column for column in map(source_column, plan.partition_keys) if column not in names]:
        raise ValueError(f"the query does not return partition key {missing[0]!r}")
    return frame if plan.partitions.is_whole else frame.where(plan.partitions.predicate)


def _checked_query(spark: SparkSession, plan: RefreshPlan, driver: Driver) -> DataFrame:
    driver.check_query(plan.query, [source.view for source in plan.sources])
    check_columns(spark, plan.query, plan.sources)
    if plan.settings.get("spark.sql.caseSensitive", "").strip().lower() == "true":
        for source in (*plan.sources, *plan.references):
            check_spelling(spark, source)
    for expected in plan.expectations:
        if expected.predicate is not None:
            driver.check_query(f"SELECT (\n{expected.predicate}\n)", ())
    return at_schedule_time(spark, plan, spark.sql(plan.query))


def _staged_files(plan: RefreshPlan, driver: Driver, rows: int) -> tuple[StagedFile, ...]:
    files = tuple(StagedFile(path, size) for path, size in driver.list_files(plan.data_location))
    if rows and not files:  # Spark on another machine with its own folder: the commit would empty the table
        raise ValueError(
            f"Spark wrote {rows} rows, but no file of them is found in {plan.data_location}; keep tables where Spark and "
            "this machine see the same files"
        )
    return files


def _written(plan: RefreshPlan, stored: DataFrame) -> tuple[int, tuple[dict[str, str], ...], dict[str, int]]:
    """Number of rows in the stage, their partitions, and the violations of each expectation, computed in one pass.

    Only partition keys that are columns are included: a computed key may be null, which the commit detects.
    """
    names = plain_keys(plan.partition_keys)
    keys = [F.col(quote(key)).cast("string") for key in names]
    violations = violations_in_stage(plan.expectations)
    groups = stored.groupBy(*keys).agg(F.count("*"), *violations.values()).collect()
    partitions = tuple(dict(zip(names, group, strict=False)) for group in groups)
    for partition in partitions:
        if nulls := [key for key, value in partition.items() if value is None]:
            empty = "" if plan.keys_in_files else " or empty"  # both have the same folder name
            raise ValueError(f"partition key {nulls[0]!r} is null{empty} in some rows; give them a value in the query")
    rows, *violating = (sum(group[len(keys) + number] for group in groups) for number in range(1 + len(violations)))
    in_order = tuple(sorted(partitions, key=lambda spec: tuple(spec.values()))) if keys else ()
    return rows, in_order, dict(zip(violations, violating, strict=True))


def register(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    """Register the function that the plan's query calls.

    :raises ValueError: names code that cannot be found.
    """
    if binding.language == "python":
        _register_python(spark, binding, driver)
    else:
        _register_java(spark, binding, driver)


def _register_python(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    for uri in binding.py_files:
        driver.add_python_file(uri)
    module, _, name = binding.code.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, SystemExit) as error:
        raise ValueError(f"function {binding.identifier}: {binding.code} cannot be imported ({error})") from error
    if hasattr(function, "returnType"):  # made by udf() or pandas_udf(), with a declared return type
        spark.udf.register(binding.function, function)
    elif binding.returns is None:
        raise ValueError(f"function {binding.identifier}: its property 'returns' is missing; name the type of its result")
    else:
        spark.udf.register(binding.function, function, binding.returns)


def _register_java(spark: SparkSession, binding: FunctionBinding, driver: Driver) -> None:
    for uri in binding.jars:
        driver.add_jar(uri)
    try:
        spark.udf.registerJavaFunction(binding.function, binding.code, binding.returns)
    except AnalysisException:
        # Not a UDF of Spark's interfaces: a Hive function or an aggregate.
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {quote(binding.function)} AS '{binding.code}'")
