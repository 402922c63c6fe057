"""Contenders that do the same work in turn, and the ratios of what it cost them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["AT_LEAST", "AT_MOST", "Figures", "Outcome", "Run", "Target", "contest"]

AT_MOST: Final = "at most"
AT_LEAST: Final = "at least"

Run = Mapping[str, float]
"""One run of one contender: quantities by name, such as `{"cpu": 0.7}`."""


@dataclass(frozen=True)
class Figures:
    """All runs of one contender.

    Attributes:
        runs: In the order in which they were made.
    """

    runs: Sequence[Run]

    def median(self, quantity: str) -> float:
        """Return the median of a quantity."""
        return statistics.median(run[quantity] for run in self.runs)

    def medians(self) -> dict[str, float]:
        """Return the median of each quantity."""
        return {quantity: self.median(quantity) for quantity in self.runs[0]}


@dataclass(frozen=True)
class Target:
    """What is to be reached, and what was.

    Attributes:
        what: The quantity, and what it is compared with.
        limit: What is to be reached.
        measured: What was.
        unit: Of both: `x` for a ratio.
        sense: `AT_MOST` or `AT_LEAST`.
    """

    what: str
    limit: float
    measured: float
    unit: str = "x"
    sense: str = AT_MOST

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.measured <= self.limit if self.sense == AT_MOST else self.measured >= self.limit


@dataclass(frozen=True)
class Outcome:
    """What one row of the report says.

    Attributes:
        row: Its name.
        title: What was done.
        sizes: How much of it.
        figures: Of each contender.
        targets: In the order in which they are printed.
        versions: Of whatever else took part.
        series: Points of plots, by plot and line.
    """

    row: str
    title: str
    sizes: Mapping[str, float | str]
    figures: Mapping[str, Figures]
    targets: Sequence[Target] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    series: Mapping[str, Any] = field(default_factory=dict)


def contest(rounds: int, contenders: Mapping[str, Callable[[], Run]]) -> dict[str, Figures]:
    """Run all contenders in turn, A B A B, so that what else the machine does meets all."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            runs[name].append(run())
    return {name: Figures(found) for name, found in runs.items()}
