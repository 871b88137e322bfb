"""The operators, around the job."""
