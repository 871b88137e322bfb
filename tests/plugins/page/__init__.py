"""Tests of the page in Airflow's UI."""
