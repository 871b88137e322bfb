"""Delta: Spark writes Parquet below a table, an entry of ours in its log commits; and tables that nobody here refreshes."""
