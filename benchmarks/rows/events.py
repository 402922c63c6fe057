"""Measure watch events: processor time per update, and latency until the handler is called."""

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from benchmarks import clientgo
from benchmarks.churn import churn
from benchmarks.contests import Outcome, Run, Target, contest
from benchmarks.interpreter import interpreter_path
from benchmarks.processes import Subject
from benchmarks.servers import Served
from benchmarks.sizes import Sizes

__all__ = ["follow", "watch_events"]

_OURS: Final = "navarchos"


def watch_events(served: Served, sizes: Sizes) -> Outcome:
    """Let each contender process the same rate of changes."""
    served.fill(sizes.nodes, sizes.pods)
    subject = "benchmarks.subjects.navarchos_informer"
    ours = (interpreter_path(), "-m", subject, "drain", str(served.place))
    peers = {
        f"client-go {mode}": (
            str(clientgo.program(clientgo.INFORMER)),
            mode,
            str(served.kubeconfig),
        )
        for mode in ("json", "protobuf")
    }
    contenders: Mapping[str, Callable[[], Run]] = {
        name: partial(follow, command, served, sizes)
        for name, command in {_OURS: ours, **peers}.items()
    }
    figures = contest(sizes.slow_rounds, contenders)

    def ratio(quantity: str, peer: str = "json") -> float:
        return figures[_OURS].median(quantity) / figures[f"client-go {peer}"].median(quantity)

    return Outcome(
        row="watch-events",
        title=f"watch events, {sizes.rate:g} updates a second among {served.pods:,} pods",
        sizes={
            "pods": served.pods,
            "rate": sizes.rate,
            "seconds": sizes.follow_seconds,
            "rounds": sizes.slow_rounds,
        },
        figures=figures,
        targets=(
            Target("CPU per update, relative to client-go JSON", 0.6, ratio("cpu_us")),
            Target(
                "CPU per update, relative to client-go protobuf",
                0.6,
                ratio("cpu_us", "protobuf"),
            ),
            *(
                Target(
                    f"{name} from write to handler, relative to client-go {peer}",
                    1.1,
                    ratio(f"{name}_ms", peer.lower()),
                )
                for peer in ("JSON", "protobuf")
                for name in ("p50", "p99")
            ),
        ),
    )


def follow(command: tuple[str, ...], served: Served, sizes: Sizes) -> Run:
    """Return microseconds of processor time per update, and latencies, of one informer."""
    with Subject(command) as subject:
        subject.report("synced")
        subject.report("after_gc")
        subject.order()
        made = churn(served, rate=sizes.rate, seconds=sizes.follow_seconds)
        subject.order(str(made))
        report = subject.report("followed")
    hundredths = statistics.quantiles(report["latencies"], n=100)
    return {
        "updates": report["updates"],
        "cpu_us": report["cpu"] / report["updates"] * 1e6,
        "p50_ms": hundredths[49] * 1e3,
        "p99_ms": hundredths[98] * 1e3,
    }
