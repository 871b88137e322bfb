"""Staged writes: lease, stage, one commit, one outcome."""
