"""The fuzzer: spoiled definitions, catalogs, statements, run confs, plans and results. Each becomes a value or a mistake."""
