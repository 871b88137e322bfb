"""Airflow operators: read fields, call a service, report the result."""
