"""Random queries over partitioned tables, for the comparison of partition lineage with Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

KINDS = {
    "o": {"ds": "string", "id": "int", "n": "int"},
    "c": {"ds": "string", "id": "int", "n": "int"},
    "d": {"day": "date", "id": "int", "n": "int"},
    "p": {"year": "int", "month": "int", "day": "string", "id": "int", "n": "int"},
    "x": {"id": "int", "n": "int"},
}
"""The columns of the tables, by their names without catalog and database."""

KEYS = {"o": ("ds",), "c": ("ds",), "d": ("day",), "p": ("year", "month", "day"), "x": ()}
"""The partition keys of the tables."""

_OF_TEXTS = (
    ("substr({0}, 1, 7)", "string"),
    ("substring({0}, 6)", "string"),
    ("left({0}, 4)", "string"),
    ("right({0}, 2)", "string"),
    ("concat('d', {0})", "string"),
    ("{0} || '!'", "string"),
    ("replace({0}, '-', '')", "string"),
    ("upper({0})", "string"),
)
_OF_DAYS = (
    ("to_date({0})", "date"),
    ("cast({0} AS date)", "date"),
    ("trunc({0}, 'MM')", "date"),
    ("date_add({0}, 1)", "date"),
    ("last_day({0})", "date"),
    ("cast(date_trunc('week', {0}) AS date)", "date"),
    ("date_format({0}, 'yyyy-MM')", "string"),
    ("date_format({0}, 'yyyyMMdd')", "string"),
    ("to_date(date_format({0}, 'yyyyMM'), 'yyyyMM')", "date"),
    ("year({0})", "int"),
    ("cast(month({0}) AS string)", "string"),
    ("lpad(day({0}), 2, '0')", "string"),
)
_UNKNOWN = (("reverse({0})", "string"), ("hash({0})", "int"), ("coalesce({0}, '2024-01-05')", "string"))


@dataclass
class Query:
    """A query that returns the columns ``k``, ``id`` and ``n``, with the type of ``k``."""

    text: str
    type: str


@dataclass
class Generator:
    """Makes queries of one seed. ``has_days`` says whether texts are dates, so that functions of dates do not fail.

    With ``has_filters``, more parts of the queries have conditions.
    """

    random: Random
    has_days: bool = True
    has_filters: bool = False
    _ctes: list[str] = field(default_factory=list)
    _known: list[tuple[str, str]] = field(default_factory=list)
    _names: int = 0

    def query(self) -> Query:
        """Return one more query."""
        self._ctes, self._known = [], []
        found = self._query(self.random.choice((0, 1, 1, 2, 2, 3)))
        head = f"WITH {', '.join(self._ctes)} " if self._ctes else ""
        return Query(head + found.text, found.type)

    def _query(self, depth: int) -> Query:
        makers = [self._plain, self._grouped, self._joined, self._chained, self._ranged, self._windowed, self._united, self._odd]
        found: Query = self.random.choices(makers, weights=(3, 3, 4, 2, 2, 3, 2, 1))[0](depth)
        if self.has_filters and self.random.random() < 0.4:
            name = self._name()
            condition = self.condition({f"{name}.k": found.type, f"{name}.id": "int", f"{name}.n": "int"})
            return Query(f"SELECT {name}.* FROM ({found.text}) AS {name} WHERE {condition}", found.type)
        return found

    def condition(self, columns: dict[str, str], depth: int = 2) -> str:
        """Return a condition on some columns, by their types."""
        one = self.random.random()
        if depth and one < 0.35:
            parts = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return f"({parts[0]} {self.random.choice(['AND', 'OR'])} {parts[1]})"
        if depth and one < 0.45:
            return f"NOT ({self.condition(columns, depth - 1)})"
        name, kind = self.random.choice([*columns.items()])
        if one < 0.5:
            return f"{name} IS {self.random.choice(['', 'NOT '])}NULL"
        if kind in ("int", "bigint"):
            values = [*"01234", "2.5", "-1"]
        else:
            values = [f"'{day}'" for day in ("2023-12-31", "2024-01-05", "2024-01-06", "2024-01-10", "2024-02-01", "2024-01")]
            values = values[:-1] if kind == "date" else values
            values += ["DATE '2024-01-06'", "date_sub('2024-01-12', 2)"] if self.has_days or kind == "date" else []
            if name.endswith(".ds") and one > 0.9:
                name, values = f"substr({name}, 1, 7)", ["'2024-01'", "'2023-12'"]
        some = self.random.choices(values, k=3)
        if one < 0.6:
            return f"{name} {self.random.choice(['', 'NOT '])}IN ({', '.join(some)})"
        if one < 0.7:
            return f"{name} {self.random.choice(['', 'NOT '])}BETWEEN {some[0]} AND {some[1]}"
        sign = self.random.choice(["=", "<>", "<", "<=", ">", ">="])
        return self.random.choice([f"{name} {sign} {some[0]}", f"{some[0]} {sign} {name}"])

    def _name(self) -> str:
        self._names += 1
        return f"r{self._names}"

    def _relation(self, depth: int) -> tuple[str, str, str, str]:
        """Return a part of FROM, its alias, and an expression for its key with its type."""
        alias = self._name()
        if depth <= 0 or self.random.random() < 0.2:
            table = self.random.choice("oocdp")
            text = f"lake.raw.{table} AS {alias}"
            if table == "p":
                parts = f"{alias}.year, '-', lpad({alias}.month, 2, '0'), '-', {alias}.day"
                return text, alias, f"concat({parts})", "string"
            key = KEYS[table][0]
            if self.has_filters and self.random.random() < 0.4:
                own = self._name()
                condition = self.condition({f"{own}.{name}": kind for name, kind in KINDS[table].items()})
                text = f"(SELECT * FROM lake.raw.{table} AS {own} WHERE {condition}) AS {alias}"
            return text, alias, f"{alias}.{key}", KINDS[table][key]
        if self._known and self.random.random() < 0.2:
            name, kind = self.random.choice(self._known)
            columns = self.random.choice(["", "(k, id, n)", "(k, n, id)"])
            return f"{name} AS {alias}{columns}", alias, f"{alias}.k", kind
        inner = self._query(depth - 1)
        if self.random.random() < 0.5:
            name = self._name()
            self._ctes.append(f"{name} AS ({inner.text})")
            self._known.append((name, inner.type))
            return f"{name} AS {alias}", alias, f"{alias}.k", inner.type
        if self.random.random() < 0.2:
            return f"({inner.text}) AS {alias}(a, id, n)", alias, f"{alias}.a", inner.type
        if self.random.random() < 0.3:
            return f"(SELECT * FROM ({inner.text})) AS {alias}", alias, f"{alias}.k", inner.type
        return f"({inner.text}) AS {alias}", alias, f"{alias}.k", inner.type

    def _rolled(self, key: str, kind: str) -> tuple[str, str]:
        """Return an expression of a key, with its type."""
        if self.random.random() < 0.4:
            return key, kind
        if kind == "int":
            return self.random.choice([(f"cast({key} AS string)", "string"), (f"cast({key} AS bigint)", "bigint"), (key, kind)])
        known = list(_OF_DAYS) if kind == "date" else list(_OF_TEXTS)
        if kind == "string" and self.has_days and key.count(".") == 1 and not key.endswith(".k"):
            known += _OF_DAYS
        if self.random.random() < 0.05 and kind == "string":
            known = list(_UNKNOWN)
        text, other = self.random.choice(known)
        return text.format(key), other

    def _where(self, alias: str) -> str:
        if self.has_filters and self.random.random() < 0.5:
            return f" WHERE {self.condition({f'{alias}.id': 'int', f'{alias}.n': 'int'})}"
        return self.random.choice(["", "", f" WHERE {alias}.n > 2", f" WHERE {alias}.id <> 1"])

    def _plain(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth)
        rolled, other = self._rolled(key, kind)
        distinct = self.random.choice(["", "", "DISTINCT "])
        view = self.random.choice(["", "", "", " LATERAL VIEW explode(array(1, 2)) g AS y"])
        number = "y" if view and self.random.random() < 0.5 else f"{alias}.n"
        return Query(f"SELECT {distinct}{rolled} AS k, {alias}.id, {number} AS n FROM {text}{view}{self._where(alias)}", other)

    def _grouped(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth)
        rolled, other = self._rolled(key, kind)
        group = self.random.choice([rolled, "1", "ALL", "k"])
        having = self.random.choice(["", "", " HAVING count(*) > 1"])
        total = self.random.choice(["sum", "max", "count"])
        head = f"SELECT {rolled} AS k, count(*) AS id, cast({total}({alias}.n) AS int) AS n"
        return Query(f"{head} FROM {text}{self._where(alias)} GROUP BY {group}{having}", other)

    def _joined(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth)
        others, other_alias, other_key, other_kind = self._relation(depth - 1)
        join = self.random.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "FULL JOIN"])
        if self.has_filters and self.random.random() < 0.1:
            join = "RIGHT JOIN"
        on = [f"{alias}.id = {other_alias}.id"] if self.random.random() < 0.6 else []
        if self.random.random() < 0.75 and kind == other_kind:
            on.append(self.random.choice([f"{key} = {other_key}", f"{other_key} = {key}", f"{key} <=> {other_key}"]))
        elif self.random.random() < 0.8 and (self.has_days or "date" not in kind + other_kind):
            on.append(f"cast({key} AS string) = cast({other_key} AS string)")
        of_other = "SEMI" not in join and "ANTI" not in join
        from_other = of_other and self.random.random() < 0.2
        rolled, result = self._rolled(other_key if from_other else key, other_kind if from_other else kind)
        number = f"{other_alias}.n" if of_other else f"{alias}.n"
        where = self._where(other_alias) if of_other else self._where(alias)
        if self.has_filters and self.random.random() < 0.5:
            both = {f"{each}.{name}": "int" for each in (alias, other_alias) for name in ("id", "n")}
            on.append(self.condition({**both, key: kind, other_key: other_kind} if "concat" not in key + other_key else both))
        condition = " AND ".join(on) or "1 = 1"
        if join == "JOIN" and self.random.random() < 0.2:
            where = f"{where} AND {condition}" if where else f" WHERE {condition}"
            source = f"{text}, {others}"
        else:
            source = f"{text} {join} {others} ON {condition}"
        third = ""
        if self.random.random() < 0.2:
            last, last_alias, last_key, last_kind = self._relation(0)
            same = f" AND {last_key} = {other_key}" if of_other and last_kind == other_kind else ""
            third = f" LEFT JOIN {last} ON {last_alias}.id = {alias}.id{same}"
        return Query(f"SELECT {rolled} AS k, {alias}.id, {number} AS n FROM {source}{third}{where}", result)

    def _chained(self, depth: int) -> Query:
        """Join three relations by USING, WHERE and equal parts of the key."""
        first, alias, key, kind = self._relation(depth)
        second, second_alias, second_key, second_kind = self._relation(depth - 1)
        if key.endswith(".ds") and second_key.endswith(".ds") and self.random.random() < 0.6:
            third_alias = self._name()
            third = f" {self.random.choice(['JOIN', 'LEFT JOIN'])} lake.raw.c AS {third_alias} USING (ds)"
            join = self.random.choice(["JOIN", "LEFT JOIN", "LEFT ANTI JOIN"])
            number = self.random.choice([f"{alias}.n", f"{third_alias}.n"])
            name = self.random.choice(["ds", key])
            return Query(f"SELECT {name} AS k, {alias}.id, {number} AS n FROM {first} {join} {second} USING (ds){third}", kind)
        third, third_alias, third_key, third_kind = self._relation(0)
        rolled, result = self._rolled(key, kind)
        where = [
            f"{one} = {other}" for one, other in self._pairs((key, kind), (second_key, second_kind), (third_key, third_kind))
        ]
        join = self.random.choice(["LEFT JOIN", "JOIN"])
        source = f"{first} {join} {second} ON {alias}.id = {second_alias}.id, {third}"
        condition = " AND ".join([f"{third_alias}.n > 1", *where])
        return Query(f"SELECT {rolled} AS k, {alias}.id, {third_alias}.n FROM {source} WHERE {condition}", result)

    def _pairs(self, *keys: tuple[str, str]) -> list[tuple[str, str]]:
        """Return some keys of one type."""
        found = [(one[0], other[0]) for one in keys for other in keys if one < other and one[1] == other[1]]
        return self.random.sample(found, min(len(found), self.random.choice([0, 1, 2])))

    def _ranged(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth if self.random.random() < 0.3 else 0)
        others, other_alias, other_key, other_kind = self._relation(0)
        if not self.has_days or {kind, other_kind} - {"date", "string"} or "concat" in key + other_key or key.endswith(".k"):
            return self._joined(depth)
        days = self.random.randrange(4)
        conditions = [
            f"{other_key} BETWEEN date_sub({key}, {days}) AND {key}",
            f"{other_key} >= date_sub({key}, {days}) AND {other_key} < date_add({key}, 1)",
            f"{key} >= {other_key} AND date_add({other_key}, {days}) >= {key}",
            f"datediff({key}, {other_key}) BETWEEN 0 AND {days}",
            f"{other_key} = date_sub({key}, {days})",
        ]
        if {kind, other_kind} == {"date"}:
            conditions.append(f"{other_key} BETWEEN {key} - INTERVAL {days} DAYS AND {key}")
        join = self.random.choice(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        source = f"{text} {join} {others} ON {self.random.choice(conditions)}"
        rolled, result = (key, kind) if self.random.random() < 0.5 else self._rolled(key, kind)
        if "SEMI" in join or "ANTI" in join:
            return Query(f"SELECT {rolled} AS k, {alias}.id, {alias}.n FROM {source}", result)
        head = f"SELECT {rolled} AS k, count(*) AS id, cast(sum({other_alias}.n) AS int) AS n"
        return Query(f"{head} FROM {source} GROUP BY {rolled}", result)

    def _windowed(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth)
        rolled, result = self._rolled(key, kind)
        by = self.random.choice([rolled, key, f"{rolled}, {alias}.id", f"{alias}.id", f"{alias}.id"])
        order = f"{alias}.n, {alias}.id"
        window = f"(PARTITION BY {by} ORDER BY {order})"
        if self.random.random() < 0.3:
            head = f"SELECT {rolled} AS k, {alias}.id, {alias}.n FROM {text}"
            return Query(f"{head} QUALIFY row_number() OVER {window} = 1", result)
        if self.random.random() < 0.3:
            head = f"SELECT {rolled} AS k, {alias}.id, rank() OVER w AS n FROM {text}"
            return Query(f"{head} WINDOW w AS {window}", result)
        return Query(f"SELECT {rolled} AS k, {alias}.id, cast(sum({alias}.n) OVER {window} AS int) AS n FROM {text}", result)

    def _united(self, depth: int) -> Query:
        first, second = self._query(depth - 1), self._query(depth - 1)
        sign = self.random.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"])
        if first.type == second.type or self.random.random() < 0.2:
            kind = first.type if first.type == second.type else "string"
            head = "SELECT k, id, n FROM"
            if first.type != second.type:
                head = "SELECT cast(k AS string) AS k, id, n FROM"
            text = f"{head} ({first.text}) {sign} {head} ({second.text})"
            return Query(text, kind)
        return first

    def _odd(self, depth: int) -> Query:
        text, alias, key, kind = self._relation(depth)
        other = self.random.choice("oc")
        head = f"SELECT {key} AS k, {alias}.id, {alias}.n FROM {text}"
        choices = [
            f"{head} ORDER BY {alias}.n, {alias}.id, 1 LIMIT 3",
            f"{head} WHERE {alias}.n > (SELECT avg(n) FROM lake.raw.{other})",
            f"{head} WHERE {alias}.id IN (SELECT id FROM lake.raw.{other})",
            f"{head} WHERE EXISTS (SELECT 1 FROM lake.raw.{other} e WHERE e.n = {alias}.n)",
            f"SELECT {key} AS k, count(*) AS id, cast(sum({alias}.n) AS int) AS n FROM {text} GROUP BY ROLLUP ({key})",
            f"SELECT {key} AS k, {alias}.id, x.n FROM {text} JOIN lake.raw.x AS x ON x.id = {alias}.id",
        ]
        return Query(self.random.choice(choices), kind)
