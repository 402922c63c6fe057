"""Measure work queues, beside client-go's."""

from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks import clientgo
from benchmarks.contests import AT_LEAST, Figures, Outcome, Run, Target, contest
from benchmarks.interpreter import interpreter_path
from benchmarks.processes import Subject
from benchmarks.sizes import Sizes

__all__ = ["cycle", "delay", "queues"]

_KINDS: Final = {"work": "navarchos WorkQueue", "priority": "navarchos PriorityQueue"}
_MEGABYTE: Final = 1e6


def queues(sizes: Sizes) -> Outcome:
    """Measure cycles of add, get and done with one and four workers, and delayed keys."""
    figures: dict[str, Figures] = {}
    for what, run in _work(sizes).items():
        peer = (str(clientgo.program(clientgo.WORKQUEUE)),)
        commands = {
            **{name: _ours(kind) for kind, name in _KINDS.items()},
            "client-go": peer,
        }
        contenders = {f"{name}, {what}": partial(run, each) for name, each in commands.items()}
        figures |= contest(sizes.slow_rounds, contenders)
    return Outcome(
        row="queues",
        title=f"work queues, {sizes.keys:,} keys; {sizes.delayed:,} delayed",
        sizes={"keys": sizes.keys, "delayed": sizes.delayed, "rounds": sizes.slow_rounds},
        figures=figures,
        targets=[target for name in _KINDS.values() for target in _targets(figures, name, sizes)],
    )


def cycle(arguments: tuple[str, ...], command: tuple[str, ...]) -> Run:
    """Return the cycles of a queue per second of wall time and of processor time."""
    with Subject([*command, *arguments]) as subject:
        report = subject.report("cycled")
    keys = int(arguments[-1])
    return {"per_second": keys / report["seconds"], "per_cpu_second": keys / report["cpu"]}


def delay(keys: int, command: tuple[str, ...]) -> Run:
    """Return the memory of delayed keys, and the processor time of three seconds of waiting."""
    with Subject([*command, "delayed", str(keys)]) as subject:
        began, added = subject.report("began"), subject.report("added")
        collected, waited = subject.report("after_gc"), subject.report("waited")
    return {
        "add_cpu_us": added["cpu"] / keys * 1e6,
        "kept_mb": (collected["resident"] - began["resident"]) / _MEGABYTE,
        "idle_cpu_ms": waited["cpu"] * 1e3,
    }


def _work(sizes: Sizes) -> dict[str, Callable[[tuple[str, ...]], Run]]:
    keys = str(sizes.keys)
    return {
        "alone": partial(cycle, ("alone", keys)),
        "1 worker": partial(cycle, ("cycles", "1", keys)),
        "4 workers": partial(cycle, ("cycles", "4", keys)),
        "delayed": partial(delay, sizes.delayed),
    }


def _ours(kind: str) -> tuple[str, ...]:
    return (interpreter_path(), "-m", "benchmarks.subjects.navarchos_queue", kind)


def _targets(figures: dict[str, Figures], name: str, sizes: Sizes) -> list[Target]:
    def cycles(work: str) -> float:
        return figures[f"{name}, {work}"].median("per_second")

    waiting = figures[f"{name}, delayed"]
    # The limit for a million keys, in proportion.
    allowed = 250 * sizes.delayed / 1e6
    return [
        Target(f"{name}, one worker", 400_000, cycles("1 worker"), "cycles/s", AT_LEAST),
        Target(f"{name}, four workers", 250_000, cycles("4 workers"), "cycles/s", AT_LEAST),
        Target(f"{name}, delayed keys", allowed, waiting.median("kept_mb"), "MB"),
        Target(f"{name}, delayed keys, idle 3 s", 3.0, waiting.median("idle_cpu_ms"), "ms"),
    ]
