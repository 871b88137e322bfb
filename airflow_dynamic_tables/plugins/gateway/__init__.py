"""The REST gateway in Airflow's api-server: mounted there, under Airflow's logins and rights, with runs of DAGs as its jobs."""
