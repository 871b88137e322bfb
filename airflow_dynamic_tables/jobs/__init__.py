"""Code that runs on the Spark cluster: this package's zip, the standard library and PySpark. Never Airflow."""
