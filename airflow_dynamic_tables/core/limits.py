"""How much of anything a person may declare: one file of garbage must not take the time or the memory of all others.

Each limit is far above what anybody writes by hand, and low enough that a file at it is read within ten seconds and 500 MB, on
a machine that does other things, too. Whoever is over one is told so, with its place.
"""

from __future__ import annotations

FILE_BYTES = 1_000_000
"""A file of definitions, of catalogs or with a query. A thousand tables take a fifth of that; parsing takes a hundred times that
much memory."""

NESTING = 50
"""Levels of lists and mappings in YAML. Definitions have fewer than ten; at some ten thousand PyYAML's C code overflows the stack
of the process."""

NODES = 200_000
"""Values in a file, after aliases and merges are written out: each takes about a kilobyte, and some lines of aliases mean
millions."""

MISTAKES_PER_FILE = 100
"""Mistakes of one file that are told. Nobody reads more, and a dump of data has one in each line."""

MESSAGE_CHARACTERS = 500
"""A message about something: it may quote a value, which may be as long as the file."""

QUERY_CHARACTERS = 200_000
"""A query, as written and with its views written out. sqlglot takes a kilobyte of memory and ten microseconds for each, and a
refresh parses it again."""

TABLES_IN_QUERY = 1_000
"""Places where a query names a table, as written. Every column that is qualified is compared with them."""

NESTED_VIEWS = 20
"""Views that read views. Each is a level of parentheses for the parser, which recurses."""

WRITTEN_OUT_CHARACTERS = 50_000_000
"""All queries of a folder with their views written out, which are kept in memory: thousands of tables may read a view of some
kilobytes."""

CIRCLES = 10
"""Circles of tables that are told one by one: each is looked for among all tables. The others are counted."""

NAMES_COMPARED = 200_000
"""Names that are looked through for one that looks like an unknown one, in one folder: a comparison takes ten microseconds."""

TAG_CHARACTERS = 100
"""A tag of a DAG: Airflow refuses a longer one."""
