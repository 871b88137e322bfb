"""Types of columns for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from airflow_dynamic_tables.core.types import Array, DataType, Field, Map, Primitive, Struct

FIELD_NAMES = st.one_of(
    st.sampled_from(["a", "B1", "_", "not", "array", "comment"]),
    st.text("aB`<>,:() .ä漢🦆\n'\"\\", min_size=1, max_size=6),
)

ALWAYS = st.just(True)
NONE = st.none()


def column_types(
    primitives: st.SearchStrategy[Primitive],
    nullable: st.SearchStrategy[bool] = ALWAYS,
    comments: st.SearchStrategy[str | None] = NONE,
    *,
    fewest_fields: int = 0,
) -> st.SearchStrategy[DataType]:
    """Types made of these primitives; nested values may all be null and have no comments, unless it is said otherwise."""

    def nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
        field = st.builds(Field, FIELD_NAMES, inner, nullable, comments)
        fields = st.lists(field, min_size=fewest_fields, max_size=3, unique_by=lambda one: one.name)
        return st.one_of(st.builds(Array, inner, nullable), st.builds(Map, inner, inner, nullable), fields.map(tuple).map(Struct))

    return st.recursive(primitives, nested, max_leaves=10)
