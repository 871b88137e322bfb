"""What the notes at runs say. That Airflow shows them is tested in ``tests/system``."""

from __future__ import annotations

from airflow_dynamic_tables.plugins.notes import undeclared_note


def test_a_note_names_tables_as_far_as_there_is_room() -> None:
    assert undeclared_note(["lake.sales.a", "lake.sales.b"]).endswith("tells of all 2: lake.sales.a, lake.sales.b")
    many = undeclared_note([f"lake.sales.table_{number:03}" for number in range(500)])
    assert len(many) == 1000, "more is refused by PostgreSQL, and with it the end of the run"
    assert "tells of all 500: lake.sales.table_000, lake.sales.table_001" in many
    assert many.endswith("…")
