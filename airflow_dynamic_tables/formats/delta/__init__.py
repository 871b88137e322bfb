"""Delta: Spark writes Parquet below the table, delta-rs commits; and Delta tables that nobody here refreshes."""
