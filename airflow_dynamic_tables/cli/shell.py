"""The interactive shell of ``sql``: multi-line statements, a history, completion, and results as tables."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from airflow_dynamic_tables.cli.commands.statements import print_answer, session_of, told
from airflow_dynamic_tables.cli.running import OK, Progress, message, progress_of
from airflow_dynamic_tables.core.identifiers import TableIdentifier, join_name
from airflow_dynamic_tables.definitions.model import Definitions
from airflow_dynamic_tables.definitions.queries.text import analyse
from airflow_dynamic_tables.definitions.statements.parsing import is_complete
from airflow_dynamic_tables.exceptions import DynamicTableError
from airflow_dynamic_tables.redaction import without_secrets
from airflow_dynamic_tables.sql.executing import execute, read_script
from airflow_dynamic_tables.sql.session import SqlSession

_INPUT = Path("<input>")
"""File name of the typed text in messages."""

_ENDS = ("exit", "quit", "\\q")
_ASKS = ("help", "?")
_HELP = """\
Statements end with a semicolon and may go over several lines: CREATE DYNAMIC TABLE, ALTER DYNAMIC TABLE, DROP DYNAMIC TABLE,
SHOW DYNAMIC TABLES, DESCRIBE, EXPLAIN, SELECT, USE, CREATE and DROP of DATABASE, VIEW and FUNCTION. For example:

  CREATE DYNAMIC TABLE lake.shop.visits
  FRESHNESS = INTERVAL '1' DAY
  AS SELECT page, count(*) AS visits FROM lake.shop.clicks GROUP BY page;

  SELECT * FROM lake.shop.visits WHERE visits > 10 ORDER BY visits DESC LIMIT 20;

Tab completes. Ctrl-C clears the input, or stops the running statement. Ctrl-D, exit, quit or \\q end the shell;
help or ? shows this, help CREATE the grammar of what begins so."""

GRAMMAR = """\
CREATE [OR ALTER] DYNAMIC TABLE [IF NOT EXISTS] name
  [(column [COMMENT 'text'], ...)]
  [COMMENT 'text']
  [PARTITIONED BY (key, ...)]
  [WITH ('key' = 'value', ...)]
  [FRESHNESS = {INTERVAL '1' DAY | '1 day'}]
  [REFRESH_MODE = {AUTO | FULL | INCREMENTAL | CONTINUOUS}]
  AS query

ALTER DYNAMIC TABLE name
  { SUSPEND | RESUME [WITH (...)] | REFRESH [PARTITION (key = 'value', ...) [TO (key = 'value', ...)]]
  | SET FRESHNESS = ... | SET REFRESH_MODE = ... | SET ('key' = 'value', ...) | RESET ('key', ...)
  | RENAME TO name | AS query }

DROP DYNAMIC TABLE [IF EXISTS] name [PURGE]

SHOW DYNAMIC TABLES [{FROM | IN} [catalog.]database] [[NOT] LIKE 'pattern']
SHOW {TABLES | VIEWS | FUNCTIONS} [{FROM | IN} [catalog.]database] [[NOT] LIKE 'pattern']
SHOW DATABASES [{FROM | IN} catalog] [[NOT] LIKE 'pattern']
SHOW CATALOGS [[NOT] LIKE 'pattern']
SHOW CREATE DYNAMIC TABLE name
{DESCRIBE | DESC} [EXTENDED] name
EXPLAIN {CREATE DYNAMIC TABLE ... | ALTER DYNAMIC TABLE name {AS query | REFRESH ...} | query}
{SELECT | WITH | FROM | VALUES | TABLE | MAP | REDUCE} ...: a query of Spark SQL that only reads
USE {[catalog.]database | CATALOG catalog}

CREATE DATABASE [IF NOT EXISTS] [catalog.]name [COMMENT 'text'] [WITH (...)]
DROP DATABASE [IF EXISTS] [catalog.]name [RESTRICT | CASCADE]
CREATE [OR REPLACE] TABLE [IF NOT EXISTS] name
  [USING format] [PARTITIONED BY (key, ...)] [COMMENT 'text'] AS query
CREATE VIEW [IF NOT EXISTS] name [COMMENT 'text'] AS query
DROP VIEW [IF EXISTS] name
CREATE FUNCTION [IF NOT EXISTS] name AS 'implementation' [LANGUAGE {JAVA | PYTHON}] [WITH (...)]
DROP FUNCTION [IF EXISTS] name"""

_NO_FILE = "There is no catalogs.yaml: any name is an embedded catalog. USE lake.sales; sets the one of short names."

_KEYWORDS = (
    *("ALTER", "AND", "AS", "BY", "CASCADE", "CATALOG", "CATALOGS", "COMMENT", "CREATE", "CROSS", "DATABASE", "DATABASES"),
    *("DAY", "DESCRIBE", "DISTINCT", "DROP", "DYNAMIC", "EXISTS", "EXPLAIN", "EXTENDED", "FRESHNESS", "FROM", "FULL"),
    *("FUNCTION", "FUNCTIONS", "GROUP", "HAVING", "HOUR", "IF", "IN", "INNER", "INTERVAL", "JOIN", "LANGUAGE", "LEFT"),
    *("LIKE", "LIMIT", "MATERIALIZED", "MINUTE", "NOT", "ON", "OR", "ORDER", "PARTITION", "PARTITIONED", "PURGE"),
    *("REFRESH", "REFRESH_MODE", "RENAME", "RESET", "RESUME", "SELECT", "SET", "SHOW", "SUSPEND", "TABLE", "TABLES", "TO"),
    *("UNION", "USE", "VIEW", "VIEWS", "WHERE", "WITH"),
)


def shell(arguments: Namespace) -> int:
    """Run the shell on a terminal."""
    with session_of(arguments) as session:
        return Shell(session, progress=progress_of(arguments)).run()


class Shell:
    """Prompts for statements and executes them until the input ends. An error ends the current text, not the shell."""

    def __init__(self, session: SqlSession, history: History | None = None, progress: Progress | None = None) -> None:
        self._session = session
        self._progress = progress or Progress(is_shown=False)
        self._history = history or _history_of_user(os.environ)
        self._definitions = Definitions()

    def run(self) -> int:
        """Prompt until Ctrl-D or ``exit``.

        :return: 0.
        """
        completer = NameCompleter(self._names, self._columns)
        prompt: PromptSession[str] = PromptSession(
            history=self._history,
            completer=completer,
            complete_while_typing=False,
            multiline=Condition(lambda: not _is_whole(prompt.default_buffer.text)),
            prompt_continuation=lambda width, _line, _wraps: "... ".rjust(width),
        )
        print("Statements end with ';'. Tab completes, help tells more, Ctrl-D ends.", file=sys.stderr)
        if self._session.workspace.settings.catalogs_file is None:
            print(_NO_FILE, file=sys.stderr)
        while True:
            completer.forget()
            try:
                text = prompt.prompt(f"{join_name(self._session.catalog, self._session.database)}> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return OK
            word = _word(text)
            if word in _ENDS:
                return OK
            if (asked := _asked(word)) is not None:
                print(_help(asked))
            else:
                self._carry_out(text)

    def _carry_out(self, text: str) -> None:
        try:
            for outcome in self._progress.each(execute(self._session, read_script(text, _INPUT)), "Running the statement"):
                print_answer(outcome.answer)
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
        except DynamicTableError as error:
            print(told(error, text, _INPUT), file=sys.stderr)
        except Exception as error:  # the shell continues after any error of a statement
            print(f"{type(error).__name__}: {message(error)} (not expected)", file=sys.stderr)

    def _names(self) -> dict[str, TableIdentifier]:
        self._definitions = Definitions()
        with suppress(DynamicTableError):  # reported when the shell started
            self._definitions, _ = self._session.project.load()
        return {self._known_as(identifier): identifier for identifier in (*self._definitions.tables, *self._definitions.sources)}

    def _known_as(self, identifier: TableIdentifier) -> str:
        is_here = (identifier.catalog, identifier.database) == (self._session.catalog, self._session.database)
        return join_name(identifier.table) if is_here else str(identifier)

    def _columns(self, identifier: TableIdentifier) -> tuple[str, ...]:
        table = self._definitions.tables.get(identifier)
        outputs = analyse(table.expanded_query).outputs if table is not None else None
        return tuple(column for column in outputs or () if column is not None)


class NameCompleter(Completer):
    """Completes keywords, names of tables, and columns of the tables in the text.

    :param names: returns tables by the names used here; called once after every :meth:`forget`.
    :param columns: returns the columns of a table; called only for tables in the text, because reading every query is slow.
    """

    def __init__(
        self, names: Callable[[], Mapping[str, TableIdentifier]], columns: Callable[[TableIdentifier], tuple[str, ...]]
    ) -> None:
        self._ask = names
        self._columns = columns
        self._names: Mapping[str, TableIdentifier] | None = None

    def forget(self) -> None:
        """Reload the names at the next completion."""
        self._names = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """See :meth:`Completer.get_completions`."""
        if self._names is None:
            self._names = self._ask()
        begun = document.get_word_before_cursor(WORD=True).rpartition(",")[2].rpartition("(")[2]
        if not begun:
            return
        words = {word.strip("(),;").lower() for word in document.text.split()}
        columns = {column for name, table in self._names.items() if name.lower() in words for column in self._columns(table)}
        for candidate in (*sorted(columns), *sorted(self._names), *_KEYWORDS):
            if candidate.lower().startswith(begun.lower()):
                yield Completion(candidate, start_position=-len(begun))


class _PrivateHistory(FileHistory):
    """A history without secrets, readable by its owner only."""

    def store_string(self, string: str) -> None:
        super().store_string(without_secrets(string))


def _history_of_user(environ: os._Environ[str]) -> History:
    """Return the history in the user's state folder, or an in-memory one if nothing can be written there."""
    try:
        state = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        file = state / "airflow-dynamic-tables" / "sql_history"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return _PrivateHistory(str(file))


def _is_whole(text: str) -> bool:
    """Return whether Enter ends a text: it ends with a semicolon, or is a command of the shell itself."""
    word = _word(text)
    return is_complete(text) or word in _ENDS or _asked(word) is not None


def _asked(word: str) -> str | None:
    """Return the prefix of the statements for which help is requested, empty for all; ``None`` if the text requests no help."""
    first, _, begins = word.partition(" ")
    return " ".join(begins.split()) if first in _ASKS else None


def _help(begins: str) -> str:
    if not begins:
        return _HELP
    first, *others = begins.upper().split()
    entries = re.split(r"\n+(?=[A-Z{])", GRAMMAR)
    heads = {entry: re.findall(r"\w+", entry.partition("\n")[0]) for entry in entries}
    found = [
        entry
        for entry, words in heads.items()
        if first in (words if entry.startswith("{") else words[:1]) and set(others) <= set(words)
    ]
    return "\n".join(found) or f"There is no statement {begins.upper()}; help lists them."


def _word(text: str) -> str:
    return text.strip().removesuffix(";").strip().lower()
