"""What a deployment allows: how it is written, and what is said of the rest."""

from __future__ import annotations

import pytest

from airflow_dynamic_tables.core.refresh.permissions import EVERYTHING, Ability, Allowed, ability_of


@pytest.mark.parametrize("text", ["", "{}", " { } ", "transform: true", "{java_calls: true}"])
def test_everything_is_allowed_unless_somebody_says_otherwise(text: str) -> None:
    assert Allowed.parse(text) == EVERYTHING
    assert [EVERYTHING.refusal(ability) for ability in Ability] == [None, None, None]


def test_each_can_be_forbidden() -> None:
    closed = Allowed.parse("{transform: false, java_calls: false, python_functions: false}")
    assert closed == Allowed(False, False, False)
    assert closed == Allowed.parse('{"transform": false,"java_calls":false , "python_functions": false,}')
    assert Allowed.parse("java_calls: false") == Allowed(java_calls=False)
    for ability in Ability:
        assert f"is not allowed here ({ability}: false in DYNAMIC_TABLES_ALLOW)" in str(closed.refusal(ability))


@pytest.mark.parametrize("text", ["false", "transform", "transform: no", "scripts: false", "transform: false, transform: true"])
def test_what_is_unclear_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"says nothing; write for example \{transform: false, java_calls: false"):
        Allowed.parse(text)


def test_functions_of_catalogs() -> None:
    assert ability_of("python") is Ability.PYTHON_FUNCTIONS
    assert ability_of("java") is ability_of("scala") is Ability.JAVA_CALLS
