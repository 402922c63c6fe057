"""Run the rows of the report, beside other libraries.

python -m benchmarks [--only ROW]... [--quick] [--rounds N] [--server real|in-process]
"""

import argparse
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import report, servers
from benchmarks.contests import Outcome
from benchmarks.machine import Steal, describe_machine, versions
from benchmarks.rows import apiserver, events, gap, informers, operating, queues, scaling, starting
from benchmarks.servers import Served
from benchmarks.sizes import FULL, QUICK, Sizes

Serve = Callable[..., AbstractContextManager[Served]]

RESULTS: Final = Path(__file__).parent / "results"

ON_A_FILLED_SERVER: Final[dict[str, Callable[[Served, Sizes], Outcome]]] = {
    "informer-sync": informers.projection,
    "informer-unstructured": informers.unstructured,
    "informer-official": informers.against_official,
    "watch-events": events.watch_events,
    "flame": informers.flame,
}
"""Rows that need a filled server. They share one, in this order."""

ALONE: Final[dict[str, Callable[[Sizes, Serve], Outcome]]] = {
    "kopf": informers.against_kopf,
    "queues": lambda sizes, _: queues.queues(sizes),
    "start": starting.starting,
    "operator-idle": operating.idle,
    "rollout": operating.rollout,
    "rollout-few": operating.rollout_of_few,
    "gap": gap.gap,
    "scaling": scaling.scaling,
    "test-server": lambda sizes, _: apiserver.apiserver(sizes),
}
"""Rows that need no server or start one themselves."""

SERVERS: Final[dict[str, Serve]] = {
    "real": servers.real,
    "in-process": servers.in_process,
}

_ROUNDS: Final = ("rounds", "slow_rounds", "scale_rounds")


def main() -> None:
    """Run the selected rows."""
    arguments = _arguments()
    sizes = QUICK if arguments.quick else FULL
    if arguments.rounds:
        sizes = replace(sizes, **dict.fromkeys(_ROUNDS, arguments.rounds))
    wanted = arguments.only or [*ON_A_FILLED_SERVER, *ALONE]
    # Results of small sizes, or of another server, are not kept.
    folder = None if arguments.quick or arguments.server != "real" else RESULTS
    serve = SERVERS[arguments.server]
    for name in filter(wanted.__contains__, ALONE):
        _run(partial(ALONE[name], sizes, serve), folder)
    if asking := [name for name in ON_A_FILLED_SERVER if name in wanted]:
        with serve() as served:
            for name in asking:
                _run(partial(ON_A_FILLED_SERVER[name], served, sizes), folder)


def _arguments() -> argparse.Namespace:
    rows = [*ON_A_FILLED_SERVER, *ALONE]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        choices=rows,
        help="run this row; may be repeated; all rows by default",
    )
    parser.add_argument("--quick", action="store_true", help="use small sizes and keep no results")
    parser.add_argument("--rounds", type=int, help="how often each contender runs")
    parser.add_argument("--server", choices=SERVERS, default="real")
    return parser.parse_args()


def _run(row: Callable[[], Outcome], folder: Path | None) -> None:
    machine, steal = describe_machine(), Steal()
    began = time.perf_counter()
    outcome = row()
    machine["stolen_percent"] = steal.percent()
    print(f"\n{outcome.title}  [{outcome.row}, {time.perf_counter() - began:.0f} s]")
    _print(report.table(outcome.figures))
    _print(report.targets(outcome))
    if folder is not None:
        report.keep(folder, report.as_json(outcome, machine, versions()))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
