"""What Airflow finds of the provider by itself."""
