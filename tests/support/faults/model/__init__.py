"""A model checker: random steps in real processes beside a small explicit model of a table."""
