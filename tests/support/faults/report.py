"""What the suite prints at its end: how many faults were injected, how often was looked, and how often something was wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class FaultReport:
    faults: Counter[str] = field(default_factory=Counter)
    polls: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def injected(self, kind: str, count: int = 1) -> None:
        """Faults that were injected for real, e.g. ``kill -9``."""
        self.faults[kind] += count

    def polled(self, count: int, wrong: int = 0) -> None:
        """Observations of readers, and how many of them were of no committed version."""
        self.polls += count
        self.wrong += wrong

    def note(self, line: str) -> None:
        """A line to print after the counts, e.g. what a rival showed in the same run."""
        self.notes.append(line)

    def add(self, other: FaultReport) -> None:
        self.faults.update(other.faults)
        self.polls += other.polls
        self.wrong += other.wrong
        self.notes += other.notes

    def lines(self) -> list[str]:
        """What to print; nothing when nothing was injected and nothing polled."""
        if not self.faults and not self.polls:
            return self.notes
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.faults.items()))
        total = f"faults injected: {self.faults.total():,}" + (f" ({kinds})" if kinds else "")
        return [f"{total}; polls made: {self.polls:,}; wrong observations: {self.wrong:,}", *self.notes]
