"""Measure how long a slot is empty between one node and the next."""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from benchmarks.contests import Figures, Outcome, Target
from benchmarks.managers import ManagerProcess
from benchmarks.rows.operating import completed, install_definitions_of_ours, start_rollout
from benchmarks.servers import Served
from benchmarks.sizes import Sizes
from navarchos.informers import SharedInformer
from navarchos.operator.api.v1alpha1 import NODE_REPLACEMENTS, NodeReplacement, Step

__all__ = ["gap"]

_NODES: Final = 30
_PATIENCE: Final = 20.0  # seconds for a node, which takes two
_TIMEOUT: Final = 30.0

Serve = Callable[..., AbstractContextManager[Served]]


class _Gaps:
    """Records the time from the end of each node to the start of the next, as seen by a watch.

    Both events arrive with about the same delay, which therefore cancels out.
    """

    def __init__(self) -> None:
        self._gaps_lock = threading.Lock()
        self._done_at: float | None = None  # guarded by _gaps_lock
        self._found: list[float] = []  # guarded by _gaps_lock

    def moved(self, old: NodeReplacement, new: NodeReplacement) -> None:
        """Record a change."""
        if old.status.current is new.status.current:
            return
        now = time.monotonic()
        with self._gaps_lock:
            if new.status.current is Step.DONE:
                self._done_at = now
            elif new.status.current is Step.RESERVED and self._done_at is not None:
                self._found.append(now - self._done_at)
                self._done_at = None

    def found(self) -> list[float]:
        """Return the gaps so far."""
        with self._gaps_lock:
            return list(self._found)


def gap(_: Sizes, serve: Serve) -> Outcome:
    """Replace empty nodes one at a time and measure how long no node is in flight."""
    with serve() as served:
        install_definitions_of_ours(served)
        served.fill(_NODES, 0)
        gaps = _Gaps()
        with ManagerProcess(served.kubeconfig), served.client() as client:
            informer = SharedInformer(client.resource(NODE_REPLACEMENTS))
            informer.add_handler(on_update=gaps.moved)
            informer.start()
            informer.wait_for_sync(_TIMEOUT)
            start_rollout(client, concurrent=1)
            completed(client, limit=_PATIENCE * _NODES)
            informer.catch_up(_TIMEOUT)
            informer.stop()
            informer.join(_TIMEOUT)
    found = gaps.found()
    run = {
        "gaps": float(len(found)),
        "median_seconds": statistics.median(found),
        "longest_seconds": max(found),
    }
    return Outcome(
        row="gap",
        title=f"from one node to the next, {_NODES} nodes",
        sizes={"nodes": _NODES},
        figures={"navarchos": Figures([run])},
        targets=(
            Target("median", 0.2, run["median_seconds"], "s"),
            Target("longest", 1.0, run["longest_seconds"], "s"),
        ),
    )
