"""Random queries of joins of all kinds, in the dialect of Spark, for the comparison of partition lineage with DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_KINDS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", "FULL JOIN", "FULL OUTER JOIN")
_HIDING = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")


@dataclass
class JoinGenerator:
    """Makes queries over tables ``o``, ``c`` and ``d`` of columns ``ds``, ``id`` and ``n``. They return ``k`` and ``n``."""

    random: Random

    def query(self) -> str:
        """Return one more query."""
        count = self.random.choice((2, 2, 3, 4))
        names = [f"r{number}" for number in range(count)]
        tables = self.random.choices("ocd", k=count)
        kinds = [self.random.choice((*_KINDS, *_HIDING)) for _ in names[1:]]
        if self.random.random() < 0.4:
            kinds[0] = self.random.choice(("FULL JOIN", "RIGHT JOIN"))
            kinds[1:2] = ["FULL JOIN"] * len(kinds[1:2]) if self.random.random() < 0.5 else kinds[1:2]
        has_using = self.random.random() < 0.4
        text = f"{self._source(tables[0])} AS r0"
        visible = ["r0"]
        for name, table, kind in zip(names[1:], tables[1:], kinds, strict=True):
            condition = "USING (ds)" if has_using else f"ON {self._condition(name, visible)}"
            text += f" {kind} {self._source(table)} AS {name} {condition}"
            visible += [] if kind in _HIDING else [name]
        key = self._key(visible, has_using=has_using)
        if self.random.random() < 0.2:
            key = f"substr({key}, 1, 7)"
        where = " AND ".join(self._wheres(visible))
        text = f"{text} WHERE {where}" if where else text
        numbers = ", ".join(f"coalesce({name}.n, -1)" for name in visible)
        if self.random.random() < 0.3:
            return f"SELECT {key} AS k, count(*) AS n FROM {text} GROUP BY {key}"
        return f"SELECT {key} AS k, concat_ws('/', {numbers}) AS n FROM {text}"

    def _source(self, table: str) -> str:
        some = self.random.random()
        if some < 0.1:
            return f"(SELECT ds, max(id) AS id, sum(n) AS n FROM lake.raw.{table} GROUP BY ds)"
        if some < 0.2:
            return f"(SELECT ds, id, n FROM lake.raw.{table} WHERE n > 1 UNION ALL SELECT ds, id, n FROM lake.raw.c)"
        return f"lake.raw.{table}"

    def _condition(self, name: str, before: list[str]) -> str:
        parts = []
        if self.random.random() < 0.85:
            other = self.random.choice(before)
            equal = [f"{other}.ds = {name}.ds", f"{name}.ds = {other}.ds", f"{other}.ds <=> {name}.ds"]
            parts.append(self.random.choice(equal))
            if len(before) > 1 and self.random.random() < 0.5:
                parts = [f"coalesce({', '.join(f'{each}.ds' for each in before)}) = {name}.ds"]
        if self.random.random() < 0.5:
            parts.append(f"{self.random.choice(before)}.id = {name}.id")
        if self.random.random() < 0.2:
            parts.append(f"{self.random.choice([*before, name])}.n > 1")
        if len(before) > 1 and self.random.random() < 0.3:
            one, other = self.random.sample(before, 2)
            parts.append(f"{one}.ds = {other}.ds")
        return " AND ".join(parts) or "1 = 1"

    def _key(self, visible: list[str], *, has_using: bool) -> str:
        some = self.random.random()
        if has_using and some < 0.5:
            return "ds"
        if len(visible) > 1 and some < 0.8:
            chosen = self.random.sample(visible, self.random.choice([len(visible), len(visible), 2]))
            return f"coalesce({', '.join(f'{each}.ds' for each in chosen)})"
        return f"{self.random.choice(visible)}.ds"

    def _subquery(self, alias: str) -> str:
        """Return a condition with a subquery, which may refer to a relation."""
        source = self._source(self.random.choice("ocd"))
        key = self.random.choice(["ds", "e.ds", "max(e.ds)", "substr(e.ds, 1, 7)"])
        some = self.random.choice(["", f"e.id = {alias}.id", f"e.ds = {alias}.ds", f"{alias}.ds <=> e.ds", "e.n > 1"])
        more = self.random.choice(["", "", " AND e.n <> 2"])
        body = f"FROM {source} AS e WHERE {some or '1 = 1'}{more}"
        negation = self.random.choice(["", "", "NOT "])
        outer = f"substr({alias}.ds, 1, 7)" if "substr" in key else f"{alias}.ds"
        forms = [
            f"{outer} {negation}IN (SELECT {key} {body})",
            f"{alias}.id {negation}IN (SELECT e.id {body})",
            f"{negation}EXISTS (SELECT 1 {body})",
            f"{alias}.n {'>=' if negation else '<'} (SELECT max(e.n) {body})",
            f"({outer} IN (SELECT {key} {body}) OR {alias}.n > 2)",
        ]
        return self.random.choice(forms)

    def _wheres(self, visible: list[str]) -> list[str]:
        found = []
        if self.random.random() < 0.4:
            found.append(self._subquery(self.random.choice(visible)))
        if self.random.random() < 0.2:
            found.append(f"{self.random.choice(visible)}.n > 1")
        if len(visible) > 1 and self.random.random() < 0.15:
            one, other = self.random.sample(visible, 2)
            found.append(f"{one}.ds = {other}.ds")
        return found
