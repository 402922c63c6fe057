"""Measure the operator: at rest, and per pod that it evicts."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from benchmarks.contests import Figures, Outcome, Run, Target
from benchmarks.managers import ManagerProcess
from benchmarks.processes import ROOT
from benchmarks.servers import Served
from benchmarks.sizes import Sizes
from navarchos.client import Client, Resource
from navarchos.testing.cluster.pod_lifecycle import TERMINATES_AFTER
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.definitions import install_definitions

__all__ = [
    "MANAGER",
    "completed",
    "idle",
    "install_definitions_of_ours",
    "rollout",
    "rollout_of_few",
    "start_rollout",
]

_CRDS: Final = ROOT / "config" / "crds"
MANAGER: Final = "navarchos-manager"
"""The beginning of the manager's user agent."""

_MEBIBYTE: Final = 2**20
_NAME: Final = "benchmark"
_LOOK_EVERY: Final = 0.25
_PATIENCE: Final = 4.0  # times what a rollout should take
_QUIET: Final = 0.1  # of a processor
_QUIET_SECONDS: Final = 5

_ROLLOUTS: Final[Resource[Any]] = Resource(
    "navarchos.pusher.com", "v1alpha1", "noderollouts", "NodeRollout", namespaced=False, type=dict
)

Serve = Callable[..., AbstractContextManager[Served]]


def idle(sizes: Sizes, serve: Serve) -> Outcome:
    """Run the manager on clusters of growing size in which nothing changes."""
    figures: dict[str, Figures] = {}
    with serve() as served:
        install_definitions_of_ours(served)
        for nodes, pods in sizes.idle:
            served.fill(nodes, pods)
            figures[f"{nodes:,} nodes, {pods:,} pods"] = Figures([_idle(served, sizes)])
    smallest, *_, largest = figures.values()
    growth = largest.median("resident") / smallest.median("resident")
    name = list(figures)[-1]
    return Outcome(
        row="operator-idle",
        title="the operator while nothing happens",
        sizes={"seconds": sizes.idle_seconds},
        figures=figures,
        targets=(
            Target(f"peak, {name}", 100, largest.median("peak") / _MEBIBYTE, "MiB"),
            Target(f"share of a core, {name}", 5, largest.median("percent_of_a_core"), "%"),
            Target("resident, relative to the smallest cluster", 1.5, growth),
        ),
    )


def rollout_of_few(sizes: Sizes, serve: Serve) -> Outcome:
    """Do the same with a fifth of the nodes at a time, to see whether the servers are the limit."""
    concurrent = sizes.rollout_concurrent // 5
    few = replace(sizes, rollout_nodes=6 * concurrent, rollout_concurrent=concurrent)
    return replace(rollout(few, serve), row="rollout-few")


def rollout(sizes: Sizes, serve: Serve) -> Outcome:
    """Replace all nodes of a cluster whose pods take their grace period to terminate."""
    nodes, per_node = sizes.rollout_nodes, sizes.rollout_pods_per_node
    with serve(unleased=True) as served:
        served.pod_annotations = {TERMINATES_AFTER: f"{sizes.grace_seconds:g}s"}
        install_definitions_of_ours(served)
        served.fill(nodes, nodes * per_node)
        _start_kubelets(served)
        with ManagerProcess(served.kubeconfig) as manager, served.client() as client:
            run = _roll(served, manager, client, sizes)
    waves = math.ceil(nodes / sizes.rollout_concurrent)
    dictated = waves * sizes.grace_seconds
    return Outcome(
        row="rollout",
        title=f"rollout, {nodes:,} nodes with {per_node} pods each, "
        f"{sizes.rollout_concurrent} at a time",
        sizes={
            "nodes": nodes,
            "pods": nodes * per_node,
            "concurrent": sizes.rollout_concurrent,
            "grace_seconds": sizes.grace_seconds,
        },
        figures={"navarchos": Figures([run])},
        targets=(
            Target("requests per node", 2 * per_node + 12, run["requests_per_node"], "requests"),
            Target("CPU of the manager per pod", 30, run["cpu_ms_per_pod"], "ms"),
            Target(
                "wall time, relative to grace periods and limit", 1.05, run["seconds"] / dictated
            ),
        ),
    )


def start_rollout(client: Client, concurrent: int) -> None:
    """Create a rollout of all nodes."""
    manifest = {
        "apiVersion": _ROLLOUTS.api_version,
        "kind": _ROLLOUTS.kind,
        "metadata": {"name": _NAME},
        "spec": {"strategy": {"maxConcurrent": concurrent}, "nodeSelectors": [{"matchAll": True}]},
    }
    client.resource(_ROLLOUTS).create(manifest)


def completed(client: Client, limit: float, *, not_before: float = 0.0) -> None:
    """Wait until all nodes have been replaced.

    Args:
        client: Reads the rollout.
        limit: The longest wait in seconds.
        not_before: Seconds before the first read. Each answer contains the names of all
            nodes, so reading too early would add load.

    Raises:
        RuntimeError: The rollout failed, or takes longer.
    """
    began = time.monotonic()
    time.sleep(not_before)
    while (phase := _phase(client.resource(_ROLLOUTS).get(_NAME))) != "Completed":
        passed = time.monotonic() - began
        if passed > limit or phase == "Failed":
            raise RuntimeError(f"the rollout is {phase} after {passed:.0f} s")
        time.sleep(_LOOK_EVERY)


def install_definitions_of_ours(served: Served) -> None:
    """Install the CustomResourceDefinitions of the operator."""
    with served.client() as client:
        install_definitions(client, _CRDS)


def _start_kubelets(served: Served) -> None:
    """Start kwok and wait until it has processed all pods.

    With twenty thousand pods this takes more than half a minute of processor time, which
    would be counted for the rollout, and until then kwok terminates pods too late. It
    processes new objects first, so a test pod cannot show when it has finished; it has
    finished when it uses no processor time.
    """
    if not isinstance(served.server, ControlPlane):
        return
    served.server.kwok()
    quiet = 0
    while quiet < _QUIET_SECONDS:
        before = served.kubelets_cpu()
        time.sleep(1)
        quiet = quiet + 1 if served.kubelets_cpu() - before < _QUIET else 0


def _idle(served: Served, sizes: Sizes) -> Run:
    with ManagerProcess(served.kubeconfig) as manager:
        before = served.server.requests_by(MANAGER)
        busy, began = manager.cpu(), time.monotonic()
        time.sleep(sizes.idle_seconds)  # the measured time begins here
        passed = time.monotonic() - began
        return {
            "percent_of_a_core": (manager.cpu() - busy) / passed * 100,
            "resident": float(manager.memory()),
            "peak": float(manager.memory("VmHWM")),
            "requests_per_minute": _new(served, before) / passed * 60,
        }


def _roll(served: Served, manager: ManagerProcess, client: Client, sizes: Sizes) -> Run:
    nodes, per_node = sizes.rollout_nodes, sizes.rollout_pods_per_node
    before, busy, began = served.server.requests_by(MANAGER), manager.cpu(), time.monotonic()
    start_rollout(client, sizes.rollout_concurrent)
    dictated = nodes / sizes.rollout_concurrent * sizes.grace_seconds
    completed(client, limit=_PATIENCE * dictated + 60, not_before=dictated)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "requests_per_node": _new(served, before) / nodes,
        "cpu_ms_per_pod": (manager.cpu() - busy) / (nodes * per_node) * 1e3,
        "resident": float(manager.memory()),
        "peak": float(manager.memory("VmHWM")),
    }


def _phase(found: Mapping[str, Any]) -> str:
    return str((found.get("status") or {}).get("phase") or "New")


def _new(served: Served, before: Mapping[str, int]) -> int:
    """Return the number of the manager's requests since then."""
    return sum(served.server.requests_by(MANAGER).values()) - sum(before.values())
