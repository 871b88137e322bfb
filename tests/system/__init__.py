"""A real Airflow, a real wheel."""
