"""The scripts for developers."""
