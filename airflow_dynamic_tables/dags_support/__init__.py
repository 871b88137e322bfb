"""What the DAG factory makes DAGs of. No decisions here."""
