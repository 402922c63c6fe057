"""What the operator costs: while nothing happens, and for each pod that it moves."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from benchmarks.contests import Figures, Outcome, Run, Target
from benchmarks.managers import ManagerProcess
from benchmarks.processes import ROOT
from benchmarks.servers import Served
from benchmarks.sizes import Sizes
from navarchos.client import Client, Resource
from navarchos.testing.cluster.podstages import TERMINATES_AFTER
from navarchos.testing.controlplane import ControlPlane
from navarchos.testing.definitions import install_definitions

__all__ = ["idle", "rollout"]

_CRDS: Final = ROOT / "config" / "crds"
_AGENT: Final = "navarchos-manager"
_MEBIBYTE: Final = 2**20
_LOOK_EVERY: Final = 0.25
_PATIENCE: Final = 4.0  # times what a rollout should take

_ROLLOUTS: Final[Resource[Any]] = Resource(
    "navarchos.pusher.com", "v1alpha1", "noderollouts", "NodeRollout", namespaced=False, type=dict
)

Serve = Callable[..., AbstractContextManager[Served]]


def idle(sizes: Sizes, serve: Serve) -> Outcome:
    """Let the manager look at clusters of two sizes in which nothing happens."""
    figures: dict[str, Figures] = {}
    with serve() as served:
        _install_definitions(served)
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
            Target(f"of a core, {name}", 5, largest.median("percent_of_a_core"), "%"),
            Target("resident, of that on the smallest cluster", 1.5, growth),
        ),
    )


def rollout(sizes: Sizes, serve: Serve) -> Outcome:
    """Replace all nodes of a cluster whose pods end when they are told to, in their time."""
    nodes, per_node = sizes.rollout_nodes, sizes.rollout_pods_per_node
    with serve(unleased=True) as served:
        served.pod_annotations = {TERMINATES_AFTER: f"{sizes.grace_seconds:g}s"}
        _install_definitions(served)
        served.fill(nodes, nodes * per_node)
        plane = served.server
        if isinstance(plane, ControlPlane):
            plane.kwok()
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
            Target("wall, of what grace and limit dictate", 1.05, run["seconds"] / dictated),
        ),
    )


def _idle(served: Served, sizes: Sizes) -> Run:
    with ManagerProcess(served.kubeconfig) as manager:
        before = served.server.requests_by(_AGENT)
        busy, began = manager.cpu(), time.monotonic()
        time.sleep(sizes.idle_seconds)  # this is what is measured
        passed = time.monotonic() - began
        return {
            "percent_of_a_core": (manager.cpu() - busy) / passed * 100,
            "resident": float(manager.memory()),
            "peak": float(manager.memory("VmHWM")),
            "requests_per_minute": _new(served, before) / passed * 60,
        }


def _roll(served: Served, manager: ManagerProcess, client: Client, sizes: Sizes) -> Run:
    nodes, per_node = sizes.rollout_nodes, sizes.rollout_pods_per_node
    before, busy, began = served.server.requests_by(_AGENT), manager.cpu(), time.monotonic()
    rollouts = client.resource(_ROLLOUTS)
    rollouts.create(_manifest(sizes.rollout_concurrent))
    limit = _PATIENCE * nodes / sizes.rollout_concurrent * sizes.grace_seconds + 60
    while (phase := _phase(rollouts.get("benchmark"))) != "Completed":
        passed = time.monotonic() - began
        if passed > limit or phase == "Failed":
            raise RuntimeError(f"the rollout is {phase} after {passed:.0f} s")
        time.sleep(_LOOK_EVERY)
    seconds = time.monotonic() - began
    return {
        "seconds": seconds,
        "requests_per_node": _new(served, before) / nodes,
        "cpu_ms_per_pod": (manager.cpu() - busy) / (nodes * per_node) * 1e3,
        "resident": float(manager.memory()),
        "peak": float(manager.memory("VmHWM")),
    }


def _manifest(concurrent: int) -> Mapping[str, object]:
    return {
        "apiVersion": _ROLLOUTS.api_version,
        "kind": _ROLLOUTS.kind,
        "metadata": {"name": "benchmark"},
        "spec": {"strategy": {"maxConcurrent": concurrent}, "nodeSelectors": [{"matchAll": True}]},
    }


def _phase(found: Mapping[str, Any]) -> str:
    return str((found.get("status") or {}).get("phase") or "New")


def _new(served: Served, before: Mapping[str, int]) -> int:
    """Return how many requests the manager has made since."""
    return sum(served.server.requests_by(_AGENT).values()) - sum(before.values())


def _install_definitions(served: Served) -> None:
    with served.client() as client:
        install_definitions(client, _CRDS)
