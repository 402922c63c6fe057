"""What the controller of a StatefulSet does next: pure decisions.

Its pods have names. A pod that is gone comes back under its name, one after the
other, and never while its predecessor of that name still exists.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from navarchos.testing.cluster.kinds import Pod, Template
from navarchos.testing.cluster.pods import Owner, from_template

__all__ = ["Step", "next_step", "stateful_pod"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """Ordinals to create and pods to delete."""

    create: tuple[int, ...] = ()
    delete: tuple[Pod, ...] = ()


def next_step(name: str, pods: Iterable[Pod], replicas: int, *, ordered: bool = True) -> Step:
    """Return what to do about the pods of the set `name`.

    Args:
        name: The set's name; pod `n` is `name-n`.
        pods: Those that it owns.
        replicas: How many it wants.
        ordered: Whether each pod waits until those before it are ready
            (`podManagementPolicy: OrderedReady`).
    """
    found = {pod.metadata.name: pod for pod in pods}
    create: list[int] = []
    for ordinal in range(replicas):
        pod = found.pop(f"{name}-{ordinal}", None)
        if pod is None:
            create.append(ordinal)
        elif pod.is_finished and not pod.is_terminating:
            # Upstream deletes a finished pod to make room for its successor.
            return Step(delete=(pod,))
        if ordered and (pod is None or not pod.is_ready or pod.is_terminating):
            return Step(create=tuple(create))
    if create:
        return Step(create=tuple(create))
    surplus = sorted((p for p in found.values() if not p.is_terminating), key=_ordinal)
    return Step(delete=tuple(surplus[-1:] if ordered else surplus))


def stateful_pod(owner: Owner, namespace: str, template: Template, ordinal: int) -> JsonObject:
    """Return the pod with the given ordinal."""
    name = f"{owner.name}-{ordinal}"
    labels = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "statefulset.kubernetes.io/pod-name": name,
    }
    spec = {"hostname": name}
    return from_template(template, owner, namespace, name=name, labels=labels, spec=spec)


def _ordinal(pod: Pod) -> int:
    _, _, number = pod.metadata.name.rpartition("-")
    return int(number) if number.isdigit() else 0
