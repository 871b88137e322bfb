"""The use cases that operators, CLI and REST call. No Airflow and no Spark imports."""
