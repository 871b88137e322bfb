"""Tests of what a job does with database servers."""
