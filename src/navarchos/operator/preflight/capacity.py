"""How much room pods ask for, and how much nodes have left. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from navarchos.operator.preflight.kinds import Container, PlanNode, PlanPod
from navarchos.quantities import parse_quantity

__all__ = ["ResourceAmounts", "free_capacity", "insufficient", "requests_of"]

ResourceAmounts = Mapping[str, int]
"""By resource, in thousandths; `pods` is a resource as well."""

_ONE_POD: Final = 1000


def requests_of(pod: PlanPod) -> Counter[str]:
    """Return what the scheduler reserves for a pod.

    Its containers and sidecars together, or its greediest init container if that asks
    for more; and the overhead of its runtime (`PodRequests` of upstream's resource
    helpers, but that a sidecar counts from the beginning).
    """
    sidecars = [c for c in pod.spec.init_containers if c.restart_policy == "Always"]
    starting = [c for c in pod.spec.init_containers if c.restart_policy != "Always"]
    total = _sum([*pod.spec.containers, *sidecars])
    beside = _sum(sidecars)
    for container in starting:
        for name, amount in container.resources.requests.items():
            total[name] = max(total[name], parse_quantity(amount) + beside[name])
    for name, amount in pod.spec.overhead.items():
        total[name] += parse_quantity(amount)
    total["pods"] = _ONE_POD
    return total


def _sum(containers: Iterable[Container]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in containers:
        for name, amount in container.resources.requests.items():
            total[name] += parse_quantity(amount)
    return total


def free_capacity(machine: PlanNode, pods: Iterable[PlanPod]) -> Counter[str]:
    """Return what a node has left beside the pods that are on it and not finished."""
    room: Counter[str] = Counter(
        {name: parse_quantity(amount) for name, amount in machine.status.allocatable.items()}
    )
    for pod in pods:
        if not pod.is_finished:
            room.subtract({n: a for n, a in requests_of(pod).items() if n in room})
    return room


def insufficient(
    wanted: ResourceAmounts, room: ResourceAmounts, taken: ResourceAmounts
) -> tuple[str, ...]:
    """Return the resources that do not suffice. One that a node does not state has no limit.

    cpu, memory and pods are stated by every kubelet; a device that is not stated is one
    that the node does not have.
    """
    return tuple(
        sorted(
            name
            for name, amount in wanted.items()
            if amount > 0
            and (amount + taken.get(name, 0) > room[name] if name in room else "/" in name)
        )
    )
