"""The file that ``make airflow`` writes for the shells beside it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.large
@pytest.mark.system
def test_airflow_in_another_shell_is_the_demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    demo_home = import_module("demo_home")
    home, dags, file = tmp_path / "a home", tmp_path / "d'ags", tmp_path / "env"
    demo_home.write_shell_file(file, demo_home.settings(home, dags))
    told = (
        f". {file}; airflow config get-value core dags_folder; airflow config get-value core load_examples; "
        "airflow connections get spark_default -o json"
    )
    bash = ["env", "-i", "PATH=/usr/bin:/bin", "bash", "-euc", told]
    ran = subprocess.run(bash, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    folder, examples, connection = ran.stdout.splitlines()[:3]
    assert (folder, examples) == (str(dags), "False")
    assert "spark_connect" in connection
    assert (home / "airflow").is_dir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert sys.executable.startswith(str(demo_home.BIN))
