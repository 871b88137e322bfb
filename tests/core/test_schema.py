"""Schema evolution: appending is legal, everything else is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_dynamic_tables.core.schema import Column, Rebuild, TableLayout, evolve, spark_ddl
from airflow_dynamic_tables.exceptions import SchemaEvolutionError, StageRejectedError

OLD = (Column("id", "bigint", nullable=False), Column("name", "string", comment="of the customer"))


def test_nothing_new() -> None:
    assert evolve(OLD, OLD) == OLD


def test_an_appended_column_is_nullable() -> None:
    appended = Column("amount", "decimal(10,2)", nullable=False, comment="in euros")
    assert evolve(OLD, (*OLD, appended)) == (*OLD, Column("amount", "decimal(10,2)", comment="in euros"))


def test_the_first_schema_has_nothing_to_keep() -> None:
    assert evolve((), OLD) == (Column("id", "bigint"), OLD[1])


def test_nullability_of_old_columns_is_the_tables() -> None:
    stricter = (OLD[0], Column("name", "string", nullable=False))
    assert evolve(OLD, stricter) == OLD


def test_an_empty_comment_deletes_the_old_one() -> None:
    assert evolve(OLD, (OLD[0], Column("name", "string", comment=""))) == (OLD[0], Column("name", "string"))


def test_a_new_comment_replaces_the_old_one() -> None:
    assert evolve(OLD, (Column("id", "bigint", nullable=False, comment="key"), Column("name", "string"))) == (
        Column("id", "bigint", nullable=False, comment="key"),
        OLD[1],
    )


def test_the_schema_for_spark_quotes_every_name() -> None:
    assert spark_ddl([Column("a b", "int"), Column("c`d", "array<string>")]) == "`a b` int, `c``d` array<string>"


ILLEGAL = {
    "dropped": ((OLD[0],), "no longer returns column 'name'"),
    "all dropped": ((), "no longer returns column 'id'"),
    "renamed": ((OLD[0], Column("title", "string")), "Column 2 was name string, but the query returns title string"),
    "reordered": ((OLD[1], OLD[0]), "Column 1 was id bigint, but the query returns name string"),
    "retyped": ((Column("id", "int", nullable=False), OLD[1]), "Column 1 was id bigint, but the query returns id int"),
    "inserted": ((OLD[0], Column("x", "int"), OLD[1]), "Column 2 was name string, but the query returns x int"),
    "other case": ((Column("ID", "bigint", nullable=False), OLD[1]), "Column 1 was id bigint, but the query returns ID bigint"),
    "nulls": ((Column("id", "bigint"), OLD[1]), "'id' is not nullable, but the query may return nulls"),
}


@pytest.mark.parametrize(("new", "message"), ILLEGAL.values(), ids=ILLEGAL)
def test_what_no_table_may_become(new: tuple[Column, ...], message: str) -> None:
    with pytest.raises(SchemaEvolutionError, match=message) as caught:
        evolve(OLD, new)
    assert isinstance(caught.value, StageRejectedError)


columns = st.lists(
    st.builds(
        Column,
        st.text(min_size=1),
        st.sampled_from(["int", "string", "array<struct<a:int>>"]),
        st.booleans(),
        st.none() | st.text(),
    ),
    max_size=6,
).map(tuple)


@given(columns, columns)
def test_old_columns_come_first_and_unchanged(old: tuple[Column, ...], appended: tuple[Column, ...]) -> None:
    evolved = evolve(old, old + appended)
    assert evolved[: len(old)] == old
    assert [column.name for column in evolved[len(old) :]] == [column.name for column in appended]
    assert all(column.nullable for column in evolved[len(old) :])
    assert evolve(evolved, old + tuple(evolved[len(old) :])) == evolved


KEYED = (Column("n", "bigint"), Column("ds", "string"))


def test_a_layout_with_keys_last_takes_them_wherever_the_query_has_them() -> None:
    layout = TableLayout(KEYED, ("ds",), keys_last=True)
    more = Column("more", "int")
    for returned in ((*KEYED, more), (KEYED[0], more, KEYED[1]), (KEYED[1], KEYED[0], more)):
        assert layout.evolved(returned) == (KEYED[0], more, KEYED[1])
    with pytest.raises(SchemaEvolutionError, match="no longer returns column 'ds'"):
        layout.evolved(KEYED[:1])


def test_any_other_layout_has_one_order() -> None:
    layout = TableLayout(KEYED, ("ds",))
    assert layout.evolved((*KEYED, Column("more", "int"))) == (*KEYED, Column("more", "int"))
    with pytest.raises(SchemaEvolutionError, match=r"Column 1 was n bigint.* --full-refresh .* Or drop the table"):
        layout.evolved(KEYED[::-1])


def test_partition_keys_of_a_table_stay_in_their_order() -> None:
    layout = TableLayout(KEYED, ("ds", "hh"))
    layout.check_keys("t", ("ds", "hh"))
    with pytest.raises(SchemaEvolutionError, match=r"t is partitioned by \(ds, hh\), its definition now by \(hh, ds\)"):
        layout.check_keys("t", ("hh", "ds"))


TEXT = (Column("n", "string"), Column("ds", "string"))


def test_a_full_refresh_changes_what_the_table_lets_it() -> None:
    for rebuild in (Rebuild.EVERYTHING, Rebuild.COLUMNS):
        layout = TableLayout(KEYED, ("ds",), rebuild=rebuild)
        assert layout.evolved(TEXT, layout.rebuild) == TEXT
        with pytest.raises(SchemaEvolutionError, match="--full-refresh"):
            layout.evolved(TEXT)
    layout = TableLayout(KEYED, ("ds",), rebuild=Rebuild.NOTHING, limit="It cannot.")
    with pytest.raises(SchemaEvolutionError, match=r"not dropped, renamed, reordered or retyped. It cannot. Drop the table"):
        layout.evolved(TEXT, layout.rebuild)


def test_other_partition_keys_are_for_a_table_that_can_be_made_anew_whole() -> None:
    layout = TableLayout(KEYED, ("ds",))
    layout.check_keys("t", (), layout.rebuild)
    with pytest.raises(SchemaEvolutionError, match=r"its definition now by \(\). Refresh all of it with --full-refresh"):
        layout.check_keys("t", ())
    layout = TableLayout(KEYED, ("ds",), rebuild=Rebuild.COLUMNS, limit="It cannot.")
    with pytest.raises(SchemaEvolutionError, match=r"now by \(\). It cannot. Drop the table"):
        layout.check_keys("t", (), layout.rebuild)


def test_where_types_stay_columns_can_be_renamed_or_dropped_at_the_end() -> None:
    layout = TableLayout(KEYED, rebuild=Rebuild.NAMES)
    renamed = (Column("m", "bigint"), KEYED[1])
    assert layout.evolved(renamed, layout.rebuild) == renamed
    assert layout.evolved(KEYED[:1], layout.rebuild) == KEYED[:1]
    for refused in (TEXT, KEYED[::-1], KEYED[1:]):
        with pytest.raises(SchemaEvolutionError, match="Drop the table"):
            layout.evolved(refused, layout.rebuild)


def test_a_column_that_stays_keeps_its_comment() -> None:
    layout = TableLayout((Column("n", "bigint", comment="how many"), Column("ds", "string")))
    assert layout.evolved((KEYED[1], KEYED[0]), layout.rebuild)[1].comment == "how many"
    assert not layout.is_kept((KEYED[1], KEYED[0]), ())
    assert layout.is_kept((*KEYED, Column("more", "int")), ())
