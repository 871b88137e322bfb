"""What the notes at runs say. That Airflow shows them is tested in ``tests/system``."""

from __future__ import annotations

from airflow_dynamic_tables.plugins.notes import undeclared_note, version_note


def test_a_note_names_tables_as_far_as_there_is_room() -> None:
    assert undeclared_note(["lake.sales.a", "lake.sales.b"]).endswith("tells of all 2: lake.sales.a, lake.sales.b")
    many = undeclared_note([f"lake.sales.table_{number:03}" for number in range(500)])
    assert len(many) == 1000, "more is refused by PostgreSQL, and with it the end of the run"
    assert "tells of all 500: lake.sales.table_000, lake.sales.table_001" in many
    assert many.endswith("…")


def test_a_note_names_the_versions_that_a_run_made() -> None:
    report = {"version": 7, "rows": 1234, "partitions": ["ds=2024-01-01"], "schedule_time": "2024-01-02T00:00:00+00:00"}
    assert version_note({"refresh": report}) == "Version 7, 1,234 rows in ds=2024-01-01, for 2024-01-02T00:00:00+00:00"
    whole = {"version": 8, "rows": 1, "partitions": [], "schedule_time": None}
    assert version_note({"refresh": whole}) == "Version 8, 1 row"
    uncounted = {"version": 9, "rows": None, "partitions": ["a=1", "a=2"], "schedule_time": None}
    assert version_note({"lake.sales.b.refresh": whole, "lake.sales.a": uncounted}) == (
        "lake.sales.a: Version 9\n\nlake.sales.b: Version 8, 1 row"
    )
    assert version_note({"refresh": {"version": None}, "other": {}}) is None
    assert len(version_note({f"lake.sales.table_{number:03}": report for number in range(500)}) or "") == 1000
