"""Ways to spoil text, bytes and trees of data; all of them choose by a random number generator that is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import yaml

TOKENS: tuple[str, ...] = (
    *("'", '"', "`", "\\", "/*", "*/", "--", ";", "(", ")", "[", "]", "{", "}", "<", ">", "|", "|>", ":", "- ", "? ", ", ", "."),
    *("&a ", "*a", "<<: *a", "<<: *defaults", "!!python/object:os.system ", "!!binary ", "%YAML 1.2", "---", "...", "|\n", "#"),
    *("\n", "\r", "\r\n", *"\t\x00\x07\x85\u2028\u202e\ufeff\ud800\U0001f600é\xa0\u0130"),
    *("null", "~", "NO", "yes", "on", "true", "0", "-1", "1e999", "0x10", "0o7", "1_000", "2024", "20240101", "12:30:45", ".nan"),
    *("0001-01-01", "9999-12-31T23:59:59-14:00", "2024-02-30", "P1D", "100 years", "INTERVAL '1' DAY", "*/7 * * * *"),
    *("SELECT", "FROM", "WHERE", "JOIN", "AS", "WITH", "UNION ALL", "LATERAL", "VALUES", "TABLE"),
    *("${env:HOME}", "{{ ds }}", ":p"),
    *("name:", "query:", "query_file: ../x", "freshness: never", "options: {}", "partitioned_by:", "sources:", "views:", ".."),
    *("a" * 300, "9" * 5_000, "(" * 200, "[" * 200, "- " * 200, "NOT " * 300, "1," * 3_000, "a." * 300, "'x' || " * 300),
)
"""What means something to YAML, to SQL, to a field, or to whatever keeps text."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 1e308, float("inf"), float("nan"), "", " ", [], {}, [[]], [None], {"": ""}),
    *({"a": {"b": {"c": []}}}, "x" * 10_000, ["x"] * 1_000, {str(n): n for n in range(1_000)}),
)


def text(random: Random, sound: str, others: Sequence[str]) -> str:
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        sound = random.choice(_OF_TEXT)(random, sound, others)
    return sound


def tree(random: Random, sound: Any) -> Any:
    for _ in range(random.choice((1, 1, 2, 3))):
        sound = _node(random, sound)
    return sound


def as_json(data: Any) -> str:
    return json.dumps(data)


def as_yaml(data: Any) -> str:
    return yaml.safe_dump(data, allow_unicode=True, sort_keys=False)


def _span(random: Random, sound: str) -> tuple[int, int]:
    start = random.randrange(len(sound) + 1)
    return start, min(len(sound), start + random.choice((1, 1, 2, 5, 20, 100)))


def _deleted(random: Random, sound: str, _: Sequence[str]) -> str:
    start, end = _span(random, sound)
    return sound[:start] + sound[end:]


def _repeated(random: Random, sound: str, _: Sequence[str]) -> str:
    start, end = _span(random, sound)
    return sound[:start] + sound[start:end] * random.choice((2, 3, 50)) + sound[end:]


def _inserted(random: Random, sound: str, _: Sequence[str]) -> str:
    place = random.randrange(len(sound) + 1)
    return sound[:place] + random.choice(TOKENS) + sound[place:]


def _replaced(random: Random, sound: str, _: Sequence[str]) -> str:
    words = sound.split(" ")
    words[random.randrange(len(words))] = random.choice(TOKENS)
    return " ".join(words)


def _moved(random: Random, sound: str, _: Sequence[str]) -> str:
    lines = sound.split("\n")
    line = lines.pop(random.randrange(len(lines)))
    lines.insert(random.randrange(len(lines) + 1), random.choice(("", " ", "  ", "    ", "\t", "- ")) + line)
    return "\n".join(lines)


def _mixed(random: Random, sound: str, others: Sequence[str]) -> str:
    other = random.choice(others)
    start, end = sorted((random.randrange(len(other) + 1), random.randrange(len(other) + 1)))
    place = random.randrange(len(sound) + 1)
    return sound[:place] + other[start:end] + sound[place:]


def _cut(random: Random, sound: str, _: Sequence[str]) -> str:
    return sound[: random.randrange(len(sound) + 1)]


def _other_letter(random: Random, sound: str, _: Sequence[str]) -> str:
    place = random.randrange(len(sound) + 1)
    return sound[:place] + chr(random.choice((random.randrange(128), random.randrange(0x3000)))) + sound[place + 1 :]


_OF_TEXT: tuple[Callable[[Random, str, Sequence[str]], str], ...] = (
    _deleted,
    _repeated,
    _inserted,
    _inserted,
    _replaced,
    _replaced,
    _moved,
    _mixed,
    _cut,
    _other_letter,
)


def _node(random: Random, data: Any) -> Any:
    if isinstance(data, dict) and data and random.random() < 0.8:
        key = random.choice(list(data))
        kind = random.random()
        if kind < 0.6:
            return {**data, key: _node(random, data[key])}
        rest = {name: value for name, value in data.items() if name != key}
        if kind < 0.75:
            return rest
        if kind < 0.9:
            return {**rest, text(random, str(key), TOKENS): data[key]}
        return {**data, random.choice(TOKENS): random.choice(VALUES)}
    if isinstance(data, list) and data and random.random() < 0.8:
        place = random.randrange(len(data))
        kind = random.random()
        replaced = [_node(random, data[place])] if kind < 0.7 else [] if kind < 0.85 else [data[place]] * 3
        return [*data[:place], *replaced, *data[place + 1 :]]
    if isinstance(data, str) and random.random() < 0.5:
        return text(random, data, TOKENS)
    return random.choice((*VALUES, random.choice(TOKENS)))
