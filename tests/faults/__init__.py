"""Refreshes while processes die, disks fill, networks break and readers watch."""
