"""Spoiled input of every kind becomes a value or a mistake with its place, in bounded time and memory; ``make fuzz`` has more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fuzzing.targets import TARGETS, mutant

ROOT = Path(__file__).parents[2]

NUMBER = 2_000
SEED = 1


@pytest.mark.large
def test_two_thousand_mutants_become_values_or_mistakes() -> None:
    """In processes of their own, which end when a mutant takes ten seconds or 500 MB, or breaks the interpreter."""
    program = [sys.executable, "-m", "tests.support.fuzzing.main", "--number", str(NUMBER), "--seed", str(SEED)]
    run = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]
    print(run.stdout)


def test_a_number_means_one_mutant_and_every_target_has_some() -> None:
    mutants = [mutant(number) for number in range(SEED, SEED + 100)]
    assert [mutant(number) for number in range(SEED, SEED + 100)] == mutants
    assert {name for name, _ in mutants} == set(TARGETS)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("broken", "reason"),
    [("raise ZeroDivisionError", "ZeroDivisionError"), ("os.abort()", "SIGABRT"), ("[0] * 10**9", "MemoryError")],
)
def test_a_mutant_that_fails_is_printed_with_its_number(broken: str, reason: str) -> None:
    program = f"""
import os, sys
from tests.support.fuzzing import main, targets
def fails(text):
    {broken}
for name in targets.TARGETS:
    targets.TARGETS[name] = targets.Target(targets.TARGETS[name].make, fails)
sys.argv = ["fuzz", "--number", "2", "--seed", "7"]
sys.exit(main.main())
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "2 mutants from 7 on" in run.stdout
    assert "2 failed" in run.stdout
    for number in (7, 8):
        name, text = mutant(number)
        assert f"mutant {number}, {name}: " in run.stdout
        assert f"{text[:5_000]!a}\nagain: make fuzz NUMBER=1 SEED={number}\n" in run.stdout
    assert reason in run.stdout
