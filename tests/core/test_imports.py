"""What core and exceptions need to be imported: they run where little is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "airflow_dynamic_tables"
CORE = sorted(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in (PACKAGE / "core").rglob("[!_]*.py"))

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        # Python's own build settings have the platform in their name.
        own = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        if not own and top not in allowed:
            raise ImportError(f"{name} must not be needed")

sys.path.insert(0, root)
sys.meta_path.insert(0, Blocker())
for name in modules:
    __import__(name)
"""


def imported(modules: list[str], *allowed: str) -> subprocess.CompletedProcess[str]:
    values = f"allowed = {(PACKAGE.name, *allowed)!r}\nroot = {str(PACKAGE.parent)!r}\nmodules = {modules!r}\n"
    # Without PYTHON* variables and site hooks of this machine, which might import something themselves.
    return subprocess.run([sys.executable, "-I", "-B", "-c", values + BLOCKER], capture_output=True, text=True, check=False)


def test_core_needs_croniter_and_what_croniter_needs() -> None:
    found = imported([*CORE, f"{PACKAGE.name}.exceptions"], "croniter", "dateutil", "six")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("module", [f"{PACKAGE.name}.exceptions", *(name for name in CORE if not name.endswith(".cron"))])
def test_everything_but_cron_needs_the_standard_library_only(module: str) -> None:
    found = imported([module])
    assert found.returncode == 0, found.stderr


def test_the_blocker_blocks() -> None:
    found = imported([f"{PACKAGE.name}.core.cron"])
    assert "croniter must not be needed" in found.stderr
