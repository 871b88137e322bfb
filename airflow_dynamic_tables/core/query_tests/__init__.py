"""Unit tests of queries: values of any type as texts that can be compared, what goes to the job, and differences of rows."""
