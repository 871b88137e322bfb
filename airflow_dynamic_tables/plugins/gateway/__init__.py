"""The REST gateway in Airflow's api-server, with Airflow's authentication and authorization, and DAG runs as jobs."""
