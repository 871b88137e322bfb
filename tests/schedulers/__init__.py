"""Schedulers of workflows, against servers that hold every request against the published description."""
