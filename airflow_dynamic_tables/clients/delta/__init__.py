"""Delta tables as their logs have them: delta-rs reads, and an entry of a log is put where there is none yet."""
