"""Limits of definitions, so that one malformed file cannot exhaust time or memory.

Each limit is far above handwritten definitions, and low enough that a file at the limit is read within ten seconds and 500 MB on
a busy machine. Exceeding a limit is reported with its position.
"""

from __future__ import annotations

FILE_BYTES = 1_000_000
"""Size of a file with definitions, catalogs or a query.

A thousand tables take a fifth of it; parsing takes a hundred times as much memory.
"""

NESTING = 50
"""Nesting of lists and mappings in YAML.

Definitions have fewer than ten levels; at some ten thousand, PyYAML's C code overflows the stack.
"""

NODES = 200_000
"""Values in a file, after expansion of aliases and merges.

Each takes about a kilobyte, and a few lines of aliases can expand to millions.
"""

MISTAKES_PER_FILE = 100
"""Reported mistakes per file. More are not useful, and a data dump has one in each line."""

MESSAGE_CHARACTERS = 500
"""Length of a message, which may quote a value as long as the file."""

QUERY_CHARACTERS = 200_000
"""Length of a query, as written and with its views expanded.

sqlglot takes a kilobyte of memory and ten microseconds per character, and a refresh parses the query again.
"""

TABLES_IN_QUERY = 1_000
"""Table references in a query, as written. Every qualified column is compared with them."""

NESTED_VIEWS = 20
"""Nesting of views. Each is a level of parentheses for the recursive parser."""

WRITTEN_OUT_CHARACTERS = 50_000_000
"""Total length of a folder's queries with views expanded, which are kept in memory.

Thousands of tables may read a view of some kilobytes.
"""

CIRCLES = 10
"""Cycles of tables that are reported individually, because each requires a search among all tables. Others are counted."""

NAMES_COMPARED = 200_000
"""Names compared per folder to suggest a correction of unknown ones: a comparison takes ten microseconds."""

TAG_CHARACTERS = 100
"""Length of a DAG tag; Airflow rejects longer ones."""
