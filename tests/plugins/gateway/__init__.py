"""The REST gateway, as Airflow mounts it."""
