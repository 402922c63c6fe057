"""Let contenders do the same work in turn, and compute ratios of their costs."""

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
        runs: The runs, in order.
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
    """A quantity with its limit and its measured value.

    Attributes:
        what: The quantity, and the contender with which it is compared.
        limit: The target value.
        measured: The measured value.
        unit: The unit of both; `x` for a ratio.
        sense: `AT_MOST` or `AT_LEAST`.
    """

    what: str
    limit: float
    measured: float
    unit: str = "x"
    sense: str = AT_MOST

    @property
    def met(self) -> bool:
        """Whether the target was reached."""
        return self.measured <= self.limit if self.sense == AT_MOST else self.measured >= self.limit


@dataclass(frozen=True)
class Outcome:
    """The results of one row of the report.

    Attributes:
        row: The name of the row.
        title: The work that was measured.
        sizes: The amount of work.
        figures: The runs of each contender, by name.
        targets: The targets, in the order in which they are printed.
        versions: Versions of other programs that took part.
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
    """Run all contenders in turn, A B A B, so that other load affects all of them equally."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            runs[name].append(run())
    return {name: Figures(found) for name, found in runs.items()}
