"""What Airflow loads by entry point besides the provider info."""
