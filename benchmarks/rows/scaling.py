"""Measure how cost grows with the number of pods, nodes, watchers and handlers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from benchmarks.contests import Figures, Outcome, Run, Target
from benchmarks.plots import slope
from benchmarks.rows.informers import fill, ours, python
from benchmarks.servers import Served
from benchmarks.sizes import Sizes

__all__ = ["scaling"]

_MEBIBYTE: Final = 2**20
_LINEAR: Final = 1.05
"""The largest cost per item at the last point, relative to the point before; with noise."""


def scaling(sizes: Sizes, serve: Callable[[], AbstractContextManager[Served]]) -> Outcome:
    """Fill caches of growing size, with growing numbers of watches and handlers."""
    # A separate server, because this row begins with fewer pods than other rows leave.
    with serve() as served:
        return _grow(served, sizes)


def _grow(served: Served, sizes: Sizes) -> Outcome:
    figures: dict[str, Figures] = {}
    series: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def draw(across: str, counts: Sequence[int], run: Callable[[int], Run]) -> None:
        lines: dict[str, list[tuple[float, float]]] = {"CPU, ms": [], "resident, MiB": []}
        for count in counts:
            found = Figures([run(count) for _ in range(sizes.scale_rounds)])
            figures[f"{count:,} {across}"] = found
            lines["CPU, ms"].append((count, found.median("cpu_sync") * 1e3))
            lines["resident, MiB"].append((count, found.median("resident") / _MEBIBYTE))
        series[across] = lines

    def nodes(count: int) -> Run:
        served.fill(count, served.pods)
        return fill(python("navarchos_parts", "nodes", str(served.kubeconfig), str(count)))

    def watchers(count: int) -> Run:
        return fill(python("navarchos_parts", "watchers", str(served.kubeconfig), str(count)))

    def pods(count: int) -> Run:
        served.fill(served.nodes, count)
        return ours("drain", served)()

    draw("nodes", sizes.scale_nodes, nodes)
    served.fill(served.nodes, sizes.scale_pods[0])
    draw("watchers", sizes.scale_watchers, watchers)
    draw("handlers", sizes.scale_handlers, lambda count: ours("drain", served, count)())
    draw("pods", sizes.scale_pods, pods)
    return Outcome(
        row="scaling",
        title="cost follows work",
        sizes={"rounds": sizes.scale_rounds},
        figures=figures,
        targets=[
            target
            for across, lines in series.items()
            for quantity, points in lines.items()
            for target in _targets(across, quantity, points)
        ],
        series=series,
    )


def _targets(across: str, quantity: str, points: Sequence[tuple[float, float]]) -> Iterator[Target]:
    """Yield a target for each line: its last step costs no more than the step before it.

    The name of the target states the slope.
    """
    (fewer, less), (most, more) = points[-2:]
    per_thousand = f"{quantity} per 1,000 {across}: {slope(points) * 1e3:.3g}"
    what = f"{per_thousand}; last step relative to the one before"
    yield Target(what, _LINEAR, (more / most) / (less / fewer))
