"""Airflow hooks for ledger, catalogs and Spark."""
