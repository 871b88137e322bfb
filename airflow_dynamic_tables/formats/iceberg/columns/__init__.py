"""What the columns of an Iceberg table are called in its files."""
