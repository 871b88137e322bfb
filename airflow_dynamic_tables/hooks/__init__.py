"""Airflow connections to catalog manager and ledger. No decisions here."""
