"""Fill a cache with the pods of a cluster, beside client-go and the official package."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from benchmarks import clientgo
from benchmarks.contests import AT_LEAST, Figures, Outcome, Run, Target, contest
from benchmarks.interpreter import interpreter_path
from benchmarks.processes import Report, Subject
from benchmarks.servers import Served
from benchmarks.sizes import Sizes

__all__ = [
    "against_kopf",
    "against_official",
    "fill",
    "flame",
    "ours",
    "projection",
    "python",
    "unstructured",
]

_OURS = "navarchos"
_WITH_FILE = "navarchos, with a kubeconfig"
_LISTED = "navarchos, ordinary list"
_OF_JSON = "relative to client-go JSON"
_OF_PROTOBUF = "relative to client-go protobuf"
_AFTER_GC = "resident after garbage collection"


def projection(served: Served, sizes: Sizes) -> Outcome:
    """Compare the operator's own projection of pods with client-go's typed informers."""
    served.fill(sizes.nodes, sizes.pods)
    peers = {f"client-go {mode}": _client_go(mode, served) for mode in ("json", "protobuf")}
    mine = {
        _OURS: ours("drain", served),
        _LISTED: ours("listed", served),
        _WITH_FILE: ours("drain", served, in_a_pod=False),
    }
    figures = _contest(served, sizes.rounds, {**mine, **peers})
    json, protobuf = (_ratio(figures, f"client-go {mode}") for mode in ("json", "protobuf"))
    listed_json = _ratio(figures, "client-go json", of=_LISTED)
    listed_protobuf = _ratio(figures, "client-go protobuf", of=_LISTED)
    return _outcome(
        "informer-sync",
        "the drain's projection",
        served,
        figures,
        targets=(
            Target(f"CPU, {_OF_PROTOBUF}", 0.35, protobuf("cpu")),
            Target(f"CPU of the sync alone, {_OF_PROTOBUF}", 0.35, protobuf("cpu_sync")),
            Target(f"wall time, {_OF_JSON}", 1.0, json("seconds")),
            Target(f"wall time, {_OF_PROTOBUF}", 1.0, protobuf("seconds")),
            Target(f"wall time of an ordinary list, {_OF_JSON}", 1.0, listed_json("seconds")),
            Target(
                f"wall time of an ordinary list, {_OF_PROTOBUF}", 1.0, listed_protobuf("seconds")
            ),
            Target(f"CPU with an ordinary list, {_OF_PROTOBUF}", 0.35, listed_protobuf("cpu")),
            Target(f"peak with an ordinary list, {_OF_JSON}", 0.20, listed_json("peak")),
            Target(f"resident, {_OF_JSON}", 0.12, json("resident")),
            Target(f"resident, {_OF_PROTOBUF}", 0.12, protobuf("resident")),
            Target(f"{_AFTER_GC}, {_OF_JSON}", 0.12, json("after_gc")),
            Target(f"{_AFTER_GC}, {_OF_PROTOBUF}", 0.12, protobuf("after_gc")),
            Target(f"peak, {_OF_JSON}", 0.20, json("peak")),
            Target(f"peak, {_OF_PROTOBUF}", 0.20, protobuf("peak")),
        ),
    )


def unstructured(served: Served, sizes: Sizes) -> Outcome:
    """Compare dicts with client-go's dynamic informer."""
    served.fill(sizes.nodes, sizes.pods)
    peer = "client-go dynamic"
    contenders = {_OURS: ours("dict", served), peer: _client_go("dynamic", served)}
    figures = _contest(served, sizes.slow_rounds, contenders)
    ratio = _ratio(figures, peer)
    return _outcome(
        "informer-unstructured",
        "unstructured",
        served,
        figures,
        targets=(
            Target("CPU, relative to client-go dynamic", 0.5, ratio("cpu")),
            Target("resident, relative to client-go dynamic", 0.5, ratio("resident")),
            Target(
                "resident after garbage collection, relative to client-go dynamic",
                0.5,
                ratio("after_gc"),
            ),
        ),
    )


def against_official(served: Served, sizes: Sizes) -> Outcome:
    """Compare with the informer of the official Python package."""
    served.fill(sizes.nodes, sizes.pods)
    peer = "kubernetes SharedInformer"
    program = ("official_informer", str(served.pods), str(served.kubeconfig))
    contenders: dict[str, Callable[[], Run]]
    contenders = {_OURS: ours("drain", served), peer: partial(fill, python(*program))}
    figures = _contest(served, sizes.slow_rounds, contenders)
    ours_, theirs = figures[_OURS], figures[peer]

    def less(quantity: str) -> float:
        return theirs.median(quantity) / ours_.median(quantity)

    return _outcome(
        "informer-official",
        "beside the official Python package",
        served,
        figures,
        targets=(
            Target("less CPU than the official SharedInformer", 15, less("cpu"), sense=AT_LEAST),
            Target(
                "less memory than the official SharedInformer",
                30,
                less("resident"),
                sense=AT_LEAST,
            ),
        ),
    )


def against_kopf(sizes: Sizes, serve: Callable[[], AbstractContextManager[Served]]) -> Outcome:
    """Compare with a kopf index, over fewer pods: it has a task for each."""
    with serve() as served:
        served.fill(sizes.nodes // 10, sizes.kopf_pods)
        program = python("kopf_index", str(served.pods), str(served.kubeconfig))
        contenders: dict[str, Callable[[], Run]] = {
            _OURS: ours("drain", served),
            f"{_OURS}, dicts": ours("dict", served),
            "kopf index": partial(fill, program),
        }
        figures = _contest(served, sizes.slow_rounds, contenders)
    return _outcome("kopf", "beside a kopf index", served, figures)


def flame(served: Served, sizes: Sizes) -> Outcome:
    """Record the stacks in which our informer spends its processor time."""
    served.fill(sizes.nodes, sizes.pods)
    with Subject(python("profiled_informer", "drain", str(served.place))) as subject:
        synced, profiled = subject.report("synced"), subject.report("profiled")
        subject.report("after_gc")
    return Outcome(
        row="flame",
        title=f"where the processor time of a sync of {served.pods:,} pods goes",
        sizes={"pods": served.pods},
        figures={_OURS: Figures([_synced(synced)])},
        series={"stacks": profiled["stacks"]},
    )


def ours(
    kind: str, served: Served, handlers: int = 1, *, in_a_pod: bool = True
) -> Callable[[], Run]:
    """Return a run of our informer, with a service account if the server has them."""
    place = served.place if in_a_pod else served.kubeconfig
    arguments = (kind, str(place), str(handlers))
    return partial(fill, python("navarchos_informer", *arguments))


def fill(command: tuple[str | Path, ...]) -> Run:
    """Run one informer until its cache is filled and its handler was called for every pod.

    Returns the processor time of the whole process and of the sync alone, the seconds of
    the sync, and the resident memory at that time, after a garbage collection, and at the
    peak.
    """
    with Subject(list(map(str, command))) as subject:
        synced, collected = subject.report("synced"), subject.report("after_gc")
    return {**_synced(synced), "after_gc": collected["resident"]}


def _synced(report: Report) -> Run:
    return {
        "cpu": report["cpu_process"],
        "cpu_sync": report["cpu"],
        **{name: report[name] for name in ("seconds", "resident", "peak", "objects")},
    }


def _client_go(mode: str, served: Served) -> Callable[[], Run]:
    return partial(fill, (clientgo.program(clientgo.INFORMER), mode, served.kubeconfig))


def python(subject: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs one of our measured programs."""
    return (interpreter_path(), "-m", f"benchmarks.subjects.{subject}", *arguments)


def _ratio(figures: Mapping[str, Figures], peer: str, *, of: str = _OURS) -> Callable[[str], float]:
    return lambda quantity: figures[of].median(quantity) / figures[peer].median(quantity)


def _contest(
    served: Served, rounds: int, contenders: Mapping[str, Callable[[], Run]]
) -> dict[str, Figures]:
    """Let each contender fill its cache in turn. Each of them must have all pods."""
    observed = {name: partial(_observed, served, run) for name, run in contenders.items()}
    figures = contest(rounds, observed)
    for name, found in figures.items():
        for run in found.runs:
            if run["objects"] != served.pods:
                raise RuntimeError(f"{name} has {run['objects']:g} of {served.pods:,} pods")
    return figures


def _outcome(
    row: str,
    beside: str,
    served: Served,
    figures: Mapping[str, Figures],
    targets: Sequence[Target] = (),
) -> Outcome:
    return Outcome(
        row=row,
        title=f"informer sync, {served.pods:,} pods, {beside}",
        sizes={
            "nodes": served.nodes,
            "pods": served.pods,
            "rounds": len(figures[_OURS].runs),
        },
        figures=figures,
        targets=targets,
    )


def _observed(served: Served, run: Callable[[], Run]) -> Run:
    """Add the processor time of the API server."""
    before = served.cpu()
    found = run()
    return {**found, "cpu_server": served.cpu() - before}
