"""The triggers of Airflow."""
