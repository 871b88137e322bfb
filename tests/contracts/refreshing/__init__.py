"""What every catalog and format promises of refreshes beside what people and other engines do to the table."""
