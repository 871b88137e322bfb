"""What became of unit tests, as people read it and as CI servers do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from airflow_dynamic_tables.core.query_tests.comparing import Difference, PlainRow
from airflow_dynamic_tables.services.query_tests.judging import QueryTestResult, Verdict

_SHOWN_ROWS = 20
"""Rows of each kind that are printed; json and yaml have all."""


def told(result: QueryTestResult) -> list[str]:
    """What a person reads of a test that did not pass: where it stands, and what is different."""
    if result.verdict is Verdict.PASSED:
        return []
    found = result.difference or Difference()
    lines = [f"{result.place}: {result.message}" if result.message else result.place]
    lines += _shown("missing", found.missing) + _shown("extra", found.extra)
    for changed in found.changed[:_SHOWN_ROWS]:
        cells = (f"{name}: expected {_value(changed.expected[name])}, got {_value(changed.got[name])}" for name in changed.got)
        lines.append(f"changed {_row(changed.alike)}  " + "; ".join(cells))
    return [*lines, *_left_out("changed", len(found.changed))]


def _shown(what: str, rows: Sequence[PlainRow]) -> list[str]:
    return [*(f"{what:<7} {_row(row)}" for row in rows[:_SHOWN_ROWS]), *_left_out(what, len(rows))]


def _left_out(what: str, count: int) -> list[str]:
    return [f"{what:<7} … and {count - _SHOWN_ROWS:,} more; -o json has all"] if count > _SHOWN_ROWS else []


def _row(row: PlainRow) -> str:
    return "{" + ", ".join(f"{name}: {_value(value)}" for name, value in row.items()) + "}"


def _value(value: object) -> str:
    """A value on one line; a text that may be taken for something else in quotes."""
    if value is None:
        return "NULL"
    if isinstance(value, str) and value and value != "NULL" and value.isprintable() and value.strip() == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def junit_xml(results: Sequence[QueryTestResult]) -> bytes:
    """The results in the form that JUnit gave them, and CI servers read."""
    counts = {verdict: str(sum(result.verdict is verdict for result in results)) for verdict in Verdict}
    total = {"tests": str(len(results)), "failures": counts[Verdict.FAILED], "errors": counts[Verdict.ERROR]}
    suite = ElementTree.Element("testsuite", {"name": "dynamic-tables", **total})
    for result in results:
        names = {"classname": str(result.table), "name": result.name, "time": f"{result.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", {key: _of_xml(text) for key, text in names.items()})
        if lines := told(result):
            problem = ElementTree.SubElement(case, "failure" if result.verdict is Verdict.FAILED else "error")
            problem.set("message", _of_xml(result.message or "the rows differ"))
            problem.text = _of_xml("\n".join(lines))
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _of_xml(text: str) -> str:
    """A text without the signs that XML cannot hold."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)
