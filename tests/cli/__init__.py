"""The command line, run in a project's folder."""
