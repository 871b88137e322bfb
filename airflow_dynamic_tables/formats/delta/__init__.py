"""Delta tables: Spark writes Parquet files, an entry in the table's log commits them."""
