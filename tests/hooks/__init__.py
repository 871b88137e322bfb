"""The hook of Airflow."""
