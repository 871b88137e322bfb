"""The clients of outside systems, each on the real one."""
