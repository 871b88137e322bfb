"""What the provider info names for Airflow to load: the commands."""
