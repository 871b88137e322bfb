"""Where operators run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    for connection in ("LOCAL", "SPARK_DEFAULT"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{connection}", '{"conn_type": "spark", "host": "local[1]"}')
    for program in ("java/bin/java", "spark/bin/spark-submit"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return tmp_path
