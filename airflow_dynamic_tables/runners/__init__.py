"""Runners submit jobs to Spark; they access neither tables nor the ledger."""
