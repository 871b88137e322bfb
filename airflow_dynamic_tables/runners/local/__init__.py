"""Spark's own Connect server on this machine: started once, found by whoever needs it, ended when nobody uses it."""
