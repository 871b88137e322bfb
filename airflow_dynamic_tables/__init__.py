"""Dynamic tables for Apache Airflow and Apache Spark. Import from the modules below; this file imports nothing."""
