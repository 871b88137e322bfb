"""What a job in this process brings is taken away again, while other threads import what they need."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from airflow_dynamic_tables.runners.spark_connect import folder_for_modules


class Lazy(ModuleType):
    """A module that imports another one when it is asked for what it does not have, as a thread might at that moment."""

    def __getattr__(self, name: str) -> object:
        sys.modules[f"{self.__name__}.{name}"] = ModuleType(name)
        raise AttributeError(name)


def test_what_was_imported_is_forgotten_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setitem(sys.modules, "lazy_one", Lazy("lazy_one"))
    with folder_for_modules() as folder:
        (folder / "brought_by_a_job.py").write_text("")
        sys.path.insert(0, str(folder))
        __import__("brought_by_a_job")
        sys.path.append("/of another thread")
    assert "brought_by_a_job" not in sys.modules
    assert "/of another thread" in sys.path
    assert not any(str(folder) in path for path in sys.path)
    for name in [name for name in sys.modules if name.startswith("lazy_one.")]:
        del sys.modules[name]
