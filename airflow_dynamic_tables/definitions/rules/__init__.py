"""The rules that a declared table must follow: storage, partition keys, settings."""
