"""The page in Airflow's UI: static files that read the REST API, without a build step."""
