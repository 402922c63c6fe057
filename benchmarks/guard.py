"""Fail when a hot path became more expensive: `make bench-guard`.

python -m benchmarks.guard [imports] [events] [admission] [informer] [rollout]

It checks counts and ratios, never times, so that it gives the same answer on any machine
and under any load. A limit leaves room for other versions of Python and of the packages;
the faults that it detects exceed it by far.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import population, servers
from benchmarks.managers import ManagerProcess
from benchmarks.processes import Subject
from benchmarks.rows.operating import MANAGER, completed, install_definitions_of_ours, start_rollout
from benchmarks.servers import Served
from navarchos.testing.apiserver import ApiServer

__all__ = [
    "Check",
    "check_admission",
    "check_events",
    "check_imports",
    "check_informer",
    "check_rollout",
    "main",
]

_PODS: Final = 600
_UPDATES: Final = 100
_EVENTS: Final = 200
_WAITING: Final = 1000
_NODES: Final = 6
_PODS_PER_NODE: Final = 20
_PATIENCE: Final = 120.0


@dataclass(frozen=True)
class Check:
    """One count or ratio with its limit.

    Attributes:
        what: The counted quantity.
        measured: The measured value.
        limit: The largest accepted value.
        noticed: The fault that exceeded the limit when it was introduced for a trial.
    """

    what: str
    measured: float
    limit: float
    noticed: str

    @property
    def holds(self) -> bool:
        """Whether the value is within the limit."""
        return self.measured <= self.limit

    def __str__(self) -> str:
        line = f"{self.what:<56} {self.measured:9.2f}  limit {self.limit:7g}"
        return f"{line}  ok" if self.holds else f"{line}  TOO MUCH: {self.noticed}?"


def check_informer(served: Served) -> Iterator[Check]:
    """Yield the checks of an informer, per pod and per change."""
    served.fill(nodes=20, pods=_PODS)
    program = [sys.executable, "-m", "benchmarks.subjects.counting_informer"]
    with Subject([*program, str(served.kubeconfig), str(_PODS), str(_UPDATES)]) as subject:
        counted, decoded = subject.report("counted"), subject.report("decoded")
    if counted["objects"] != _PODS:
        raise RuntimeError(f"the informer has {counted['objects']} of {_PODS} pods")
    requests = served.server.requests_by("guard-informer")
    yield Check("requests of an informer", sum(requests.values()), 2, "a request per object")
    yield Check(
        "memory blocks kept per pod", counted["blocks_per_pod"], 45, "unused fields or copies"
    )
    yield Check("objects that handlers get as copies", counted["copies"], 0, "a copy per handler")
    yield Check("calls per pod of the first list", counted["calls_per_pod"], 95, "work per object")
    yield Check("calls per change", counted["calls_per_update"], 218, "work per change")
    yield Check("decoding, relative to json.loads", decoded["ratio"], 0.3, "unused fields")


def check_events() -> Iterator[Check]:
    """Yield the calls that an event of a watch takes, from its bytes to the store."""
    program = [sys.executable, "-m", "benchmarks.subjects.counting_events", str(_EVENTS)]
    with Subject(program) as subject:
        counted = subject.report("counted")
    if not counted["stored"]:
        raise RuntimeError("the store is empty: no event was applied")
    yield Check(
        "calls per event, from bytes to store", counted["calls_per_event"], 73, "work per event"
    )


def check_admission() -> Iterator[Check]:
    """Yield the calls of one pass of admission, with gates and three systems that share slots."""
    program = [sys.executable, "-m", "benchmarks.subjects.counting_admission", str(_WAITING)]
    with Subject(program) as subject:
        counted = subject.report("counted")
    if counted["decided"] != _WAITING or not counted["started"]:
        raise RuntimeError(f"admission decided on {counted['decided']} of {_WAITING} nodes")
    yield Check(
        "calls per waiting node of one admission",
        counted["calls_per_node"],
        130,
        "holders read for each node",
    )


def check_rollout(served: Served) -> Iterator[Check]:
    """Yield the checks of the operator: requests per pod and per node."""
    assert isinstance(served.server, ApiServer)
    moved = _NODES * _PODS_PER_NODE
    served.fill(nodes=_NODES, pods=0)
    served.server.install(*map(_fleeting, range(moved)))
    install_definitions_of_ours(served)
    with ManagerProcess(served.kubeconfig), served.client() as client:
        asked_before = _requests(served.server)
        start_rollout(client, _NODES)
        completed(client, limit=_PATIENCE)
        asked = _requests(served.server) - asked_before
    left = len(served.server.list("pods"))
    if left:
        raise RuntimeError(f"{left} pods are left after the rollout")
    if (evicted := served.server.requests_by(MANAGER)["evict"]) < moved:
        raise RuntimeError(f"{evicted} of {moved} pods were evicted")
    yield Check("requests of a rollout, per pod", asked / moved, 2.3, "a request per pod")
    besides = (asked - evicted) / _NODES
    yield Check("requests per node, without evictions", besides, 24, "a request per node")


def _fleeting(number: int) -> dict[str, Any]:
    """Return a pod that disappears as soon as it is evicted, without a kubelet."""
    made = population.pod(number, population.node_name(number % _NODES))
    return {**made, "spec": {**made["spec"], "terminationGracePeriodSeconds": 0}}


def check_imports() -> Iterator[Check]:
    """Yield the checks of imports: the number of loaded modules."""
    for what, limit in (("import navarchos", 60), ("from navarchos import Manager", 700)):
        with Subject([sys.executable, "-m", "benchmarks.subjects.counting_imports", what]) as run:
            counted = run.report("imported")
        yield Check(f"modules loaded by `{what}`", counted["modules"], limit, "an eager import")
        yield Check(
            f"official package loaded by `{what}`", counted["official"], 0, "an eager import"
        )


def main() -> None:
    """Print the checks of all parts, or of the named ones; end with 1 when one fails."""
    parts = sys.argv[1:] or [*_PARTS]
    checks: list[Check] = []
    for part in parts:
        for check in _PARTS[part]():
            print(check, flush=True)
            checks.append(check)
    if not all(check.holds for check in checks):
        sys.exit("bench-guard: a hot path became more expensive; see above")


def _on_a_server(check: Callable[[Served], Iterator[Check]]) -> Iterator[Check]:
    with servers.in_process() as served:
        yield from check(served)


_PARTS: Final[dict[str, Callable[[], Iterator[Check]]]] = {
    "imports": check_imports,
    "events": check_events,
    "admission": check_admission,
    "informer": lambda: _on_a_server(check_informer),
    "rollout": lambda: _on_a_server(check_rollout),
}


def _requests(server: ApiServer) -> int:
    """Return the manager's requests without renewals of its lease, which depend on time."""
    return sum(
        record.user_agent.startswith(MANAGER) and record.resource != "leases"
        for record in server.audit
    )


if __name__ == "__main__":
    main()
