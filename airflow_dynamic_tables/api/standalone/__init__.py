"""The gateway as a server of its own, without Airflow: a token, and refreshes in processes of their own."""
