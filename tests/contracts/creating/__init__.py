"""What CREATE TABLE AS promises, over every catalog and format in which tables can be drafted."""
