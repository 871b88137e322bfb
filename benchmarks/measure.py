"""How the benchmarks measure: two sides in turn in the same run, medians, one line for each figure with both sides."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence


def interleave(rounds: int, **sides: Callable[[], float]) -> dict[str, list[float]]:
    """Measure every side once a round, A B A B …, so that a busy moment of the machine hits both.

    :return: what each side measured, in the order of the rounds.
    """
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, measure in sides.items():
            measured[name].append(measure())
        print(
            f"  round {number + 1}/{rounds}: " + ", ".join(f"{name} {found[-1]:.3f}" for name, found in measured.items()),
            flush=True,
        )
    return measured


def compare(
    what: str, ours: Sequence[float], rival: Sequence[float], rival_name: str, target: float | None = None, slack: float = 0
) -> None:
    """Print a ratio of medians in seconds with both sides.

    :param target: the ratio that is aimed at, if one is.
    :param slack: seconds that ours may take on top.
    """
    a, b = statistics.median(ours), statistics.median(rival)
    aim = ""
    if target is not None:
        limit = f"<= {target:.2f}" + (f" + {slack:g} s" if slack else "")
        aim = f"; target {limit}: {_verdict(a, b * target + slack)}"
    print(f"{what}: ratio {a / b:.2f}{aim}")
    print(f"  ours {spread(ours)}\n  {rival_name} {spread(rival)}")


def check(what: str, measured: Sequence[float], unit: str, limit: float) -> None:
    """Print a figure that has no rival but a limit."""
    print(f"{what}: {spread(measured, unit)}; target <= {limit:g} {unit}: {_verdict(statistics.median(measured), limit)}")


def spread(measured: Sequence[float], unit: str = "s") -> str:
    """Median, smallest and largest of some measurements."""
    return f"{statistics.median(measured):.3g} {unit} ({min(measured):.3g} to {max(measured):.3g}, {len(measured)} rounds)"


def _verdict(measured: float, limit: float) -> str:
    return "met" if measured <= limit else "MISSED"
