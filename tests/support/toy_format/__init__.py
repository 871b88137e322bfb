"""A format that only tests know: it shows what a new format takes, and that nothing above the registry has to learn of it."""
