"""Airflow plugins: commands, REST gateway, and notes of runs."""
