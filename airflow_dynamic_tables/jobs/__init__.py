"""What runs on the Spark cluster: this package's zip, the standard library and pyspark. Never Airflow."""
