"""The use cases that operator, CLI and REST all call. No Airflow and no Spark import here."""
