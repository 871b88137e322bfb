"""What is in a stage of an Iceberg table: its files, and which partition each is of."""
